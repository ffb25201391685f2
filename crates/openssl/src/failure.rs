//! Errors of this provider on OpenSSL's error queue, for failures that the default provider does
//! not have.

use std::ffi::{CStr, c_char, c_void};

use crate::ffi::{Core, CoreHandle, Item, Table};

/// A failure of an operation with a private key that a device holds. Its number is the reason in
/// OpenSSL's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    NoAnswer = 1,
    NotExported,
    NotHeld,
    BadHandle,
    NotComputed,
    NoRoom,
    BadCiphertext,
    NoRandomBytes,
}

impl Failure {
    const ALL: [Failure; 8] = [
        Self::NoAnswer,
        Self::NotExported,
        Self::NotHeld,
        Self::BadHandle,
        Self::NotComputed,
        Self::NoRoom,
        Self::BadCiphertext,
        Self::NoRandomBytes,
    ];

    const fn text(self) -> &'static CStr {
        match self {
            Self::NoAnswer => c"the device that holds this key does not answer",
            Self::NotExported => c"the private key is held by a device",
            Self::NotHeld => {
                c"a device holds RSA-2048, RSA-3072, RSA-4096, P-256 and P-384 \
                  keys only"
            }
            Self::BadHandle => c"slipstream-handle is an unsigned integer of at most 64 bits",
            Self::NotComputed => {
                c"the device that holds this key only signs (PKCS #1 v1.5, PSS, ECDSA; SHA-1, \
                  SHA-2) and decrypts for TLS"
            }
            Self::NoRoom => c"the buffer is too short for the result",
            Self::BadCiphertext => c"the ciphertext is not less than the modulus",
            Self::NoRandomBytes => c"the system gives no random bytes",
        }
    }
}

/// The texts of all failures, for the core.
pub(crate) static REASONS: Table<Item, { Failure::ALL.len() + 1 }> = {
    let mut items = [const { Item::END }; Failure::ALL.len() + 1];
    let mut index = 0;
    while index < Failure::ALL.len() {
        items[index] = Item {
            id: Failure::ALL[index] as u32,
            text: Failure::ALL[index].text().as_ptr(),
        };
        index += 1;
    }
    Table(items)
};

/// The error queue of OpenSSL's core.
pub(crate) struct Errors {
    handle: *const CoreHandle,
    new: Option<unsafe extern "C" fn(*const CoreHandle)>,
    set: Option<unsafe extern "C" fn(*const CoreHandle, u32, *const c_char, *mut c_void)>,
}

impl Errors {
    pub(crate) fn new(handle: *const CoreHandle, core: &Core) -> Self {
        Self {
            handle,
            new: core.new_error,
            set: core.vset_error,
        }
    }

    /// Puts `failure` on the calling thread's queue.
    pub(crate) fn raise(&self, failure: Failure) {
        let (Some(new), Some(set)) = (self.new, self.set) else {
            return;
        };
        // SAFETY: the core's own handle, which stays as long as the provider. Without a format no
        // argument is read.
        unsafe {
            new(self.handle);
            let nothing = std::ptr::null_mut();
            set(self.handle, failure as u32, std::ptr::null(), nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_has_its_own_reason() {
        for (number, failure) in (1..).zip(Failure::ALL) {
            assert_eq!(failure as u32, number, "{failure:?}");
        }
        assert_eq!(REASONS.0[Failure::ALL.len()].id, 0);
    }
}
