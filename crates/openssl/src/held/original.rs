//! A key of OpenSSL, read through libcrypto's own functions.

use std::ffi::{CStr, c_void};

use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;
use slipstream_offload::Kind;
use zeroize::Zeroizing;

use crate::ffi::{SELECT_DOMAIN_PARAMETERS, SELECT_KEYPAIR, SELECT_OTHER_PARAMETERS};
use crate::libcrypto::{EvpPkey, Libcrypto};
use crate::param::Lent;

/// An `EVP_PKEY` that the caller owns.
pub(super) struct Original<'a> {
    libcrypto: &'a Libcrypto,
    key: *const EvpPkey,
}

impl<'a> Original<'a> {
    /// # Safety
    /// `key` must be a key of this libcrypto, and outlive the result.
    pub(super) unsafe fn new(libcrypto: &'a Libcrypto, key: *const EvpPkey) -> Self {
        Self { libcrypto, key }
    }

    /// The kind of operation that a device computes with it; `None` if devices do not hold such
    /// keys.
    pub(super) fn kind(&self) -> Option<Kind> {
        if self.is_a(c"RSA") {
            let modulus = self.number(c"n", LONGEST)?;
            return Size::of_modulus(&modulus).map(Kind::Rsa);
        }
        if self.is_a(c"EC") {
            let mut name = [0; 64];
            let length = self.read(Lent::text(c"group", &mut name))?;
            return curve(name.get(..length)?).map(Kind::Ecdsa);
        }
        None
    }

    /// A number of at most `longest` bytes, big-endian and without leading zeros; `None` if the key
    /// does not have it.
    pub(super) fn number(&self, name: &'static CStr, longest: usize) -> Option<Zeroizing<Vec<u8>>> {
        let mut number = Zeroizing::new(vec![0; longest]);
        let length = self.read(Lent::big_number(name, &mut number))?;
        // x86-64 is little-endian, and so are its numbers.
        number.get_mut(..length)?.reverse();
        number.truncate(length);
        let zeros = number.iter().take_while(|&&byte| byte == 0).count();
        // Moved within the vector: no copy stays behind.
        number.copy_within(zeros.., 0);
        number[length - zeros..].fill(0);
        number.truncate(length - zeros);
        Some(number)
    }

    /// An octet string of at most `longest` bytes; `None` if the key does not have it.
    pub(super) fn octets(&self, name: &'static CStr, longest: usize) -> Option<Vec<u8>> {
        let mut octets = vec![0; longest];
        let length = self.read(Lent::octets(name, &mut octets))?;
        octets.truncate(length);
        Some(octets)
    }

    /// Makes a key of this provider from `params`, in the default library context. `None` if
    /// OpenSSL refuses.
    pub(super) fn make(&self, name: &CStr, params: &mut [Lent<'_>]) -> Option<*mut c_void> {
        let libcrypto = self.libcrypto;
        let selection = SELECT_KEYPAIR | SELECT_DOMAIN_PARAMETERS | SELECT_OTHER_PARAMETERS;
        let mut key = std::ptr::null_mut();
        // SAFETY: the default library context, texts that end with NUL, and an array that ends with
        // a null key.
        unsafe {
            let context = (libcrypto.pkey_ctx_new_from_name)(
                std::ptr::null_mut(),
                name.as_ptr(),
                c"provider=slipstream".as_ptr(),
            );
            if context.is_null() {
                return None;
            }
            let made = (libcrypto.pkey_fromdata_init)(context) == 1 && {
                let params = Lent::as_mut_ptr(params);
                (libcrypto.pkey_fromdata)(context, &mut key, selection, params) == 1
            };
            (libcrypto.pkey_ctx_free)(context);
            made.then_some(key.cast())
        }
    }

    fn is_a(&self, name: &CStr) -> bool {
        // SAFETY: the promise of `new`, and a text that ends with NUL.
        unsafe { (self.libcrypto.pkey_is_a)(self.key, name.as_ptr()) == 1 }
    }

    /// Reads one parameter, and returns its length in bytes. `None`, without an error on the queue,
    /// if the key does not have it.
    fn read(&self, param: Lent<'_>) -> Option<usize> {
        let libcrypto = self.libcrypto;
        let mut params = [param, Lent::END];
        let array = Lent::as_mut_ptr(&mut params);
        // SAFETY: the promise of `new`, and an array that ends with a null key.
        let read = unsafe {
            (libcrypto.error_set_mark)();
            let read = (libcrypto.pkey_get_params)(self.key, array);
            (libcrypto.error_pop_to_mark)();
            read
        };
        if read != 1 {
            return None;
        }
        params[0].answered()
    }
}

/// The length of the longest number in bytes.
pub(super) const LONGEST: usize = 512;

fn curve(group: &[u8]) -> Option<Curve> {
    match group {
        b"prime256v1" | b"P-256" => Some(Curve::P256),
        b"secp384r1" | b"P-384" => Some(Curve::P384),
        _ => None,
    }
}
