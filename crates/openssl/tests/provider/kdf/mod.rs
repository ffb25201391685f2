//! Key derivation: published vectors, and the default provider's answers to whatever is asked.

use std::ffi::{CStr, c_char, c_int, c_void};

use openssl_sys::OSSL_PARAM;

use crate::common::{Outcome, call};

mod differential;
mod memory;
mod vectors;

unsafe extern "C" {
    fn EVP_KDF_fetch(
        library: *mut c_void,
        name: *const c_char,
        query: *const c_char,
    ) -> *mut c_void;
    fn EVP_KDF_free(kdf: *mut c_void);
    fn EVP_KDF_CTX_new(kdf: *mut c_void) -> *mut c_void;
    fn EVP_KDF_CTX_dup(context: *const c_void) -> *mut c_void;
    fn EVP_KDF_CTX_reset(context: *mut c_void);
    fn EVP_KDF_CTX_free(context: *mut c_void);
    fn EVP_KDF_CTX_set_params(context: *mut c_void, params: *const OSSL_PARAM) -> c_int;
    fn EVP_KDF_CTX_get_params(context: *mut c_void, params: *mut OSSL_PARAM) -> c_int;
    fn EVP_KDF_CTX_settable_params(context: *mut c_void) -> *const OSSL_PARAM;
    fn EVP_KDF_CTX_gettable_params(context: *mut c_void) -> *const OSSL_PARAM;
    fn EVP_KDF_derive(
        context: *mut c_void,
        output: *mut u8,
        length: usize,
        params: *const OSSL_PARAM,
    ) -> c_int;
}

const INTEGER: u32 = 1;
const UNSIGNED_INTEGER: u32 = 2;
const UTF8_STRING: u32 = 4;
const OCTET_STRING: u32 = 5;

const EXTRACT_AND_EXPAND: c_int = 0;
const EXTRACT_ONLY: c_int = 1;
const EXPAND_ONLY: c_int = 2;

/// A parameter with its value.
#[derive(Clone, Debug)]
struct Setting {
    name: &'static CStr,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Text(&'static CStr),
    Number(c_int),
    Octets(Vec<u8>),
    /// Octets at no address.
    Null,
}

fn text(name: &'static CStr, value: &'static CStr) -> Setting {
    let value = Value::Text(value);
    Setting { name, value }
}

fn mode(value: c_int) -> Setting {
    let value = Value::Number(value);
    Setting {
        name: c"mode",
        value,
    }
}

fn octets(name: &'static CStr, value: impl Into<Vec<u8>>) -> Setting {
    let value = Value::Octets(value.into());
    Setting { name, value }
}

/// An `EVP_KDF_CTX`.
struct Kdf(*mut c_void);

impl Kdf {
    fn new(name: &CStr, query: &CStr) -> Self {
        // SAFETY: texts that end with NUL; the context keeps what was fetched.
        let context = unsafe {
            let kdf = EVP_KDF_fetch(std::ptr::null_mut(), name.as_ptr(), query.as_ptr());
            assert!(!kdf.is_null(), "{name:?} {query:?}");
            let context = EVP_KDF_CTX_new(kdf);
            EVP_KDF_free(kdf);
            context
        };
        assert!(!context.is_null());
        Self(context)
    }

    fn duplicate(&self) -> Option<Self> {
        // SAFETY: a context.
        let copy = unsafe { EVP_KDF_CTX_dup(self.0) };
        (!copy.is_null()).then_some(Self(copy))
    }

    fn reset(&self) {
        // SAFETY: a context.
        unsafe { EVP_KDF_CTX_reset(self.0) };
    }

    fn set(&self, settings: &[Setting]) -> Outcome {
        let params = params(settings);
        call(0, |_, _| {
            // SAFETY: a context, and an array that ends.
            unsafe { EVP_KDF_CTX_set_params(self.0, params.as_ptr()) }
        })
    }

    /// With settings, or without an array of them.
    fn derive(&self, settings: Option<&[Setting]>, length: usize) -> Outcome {
        let params = settings.map(params);
        let array = params
            .as_ref()
            .map_or(std::ptr::null(), |params| params.as_ptr());
        call(length, |output, length| {
            // SAFETY: a context, room for as many bytes, and an array that ends or none.
            unsafe { EVP_KDF_derive(self.0, output, *length, array) }
        })
    }

    /// The answer, and the size if it was given.
    fn size(&self) -> (c_int, Option<usize>) {
        let mut size = 0_usize;
        let mut params = [
            OSSL_PARAM {
                key: c"size".as_ptr(),
                data_type: UNSIGNED_INTEGER,
                data: (&raw mut size).cast(),
                data_size: size_of::<usize>(),
                return_size: usize::MAX,
            },
            END,
        ];
        // SAFETY: a context, and an array that ends.
        let answer = unsafe { EVP_KDF_CTX_get_params(self.0, params.as_mut_ptr()) };
        let _ = openssl::error::ErrorStack::get();
        (
            answer,
            (params[0].return_size != usize::MAX).then_some(size),
        )
    }

    /// The names and types of what can be set, and of what can be read.
    fn lists(&self) -> [Vec<(String, u32)>; 2] {
        // SAFETY: a context; the lists end and stay.
        unsafe {
            [
                list(EVP_KDF_CTX_settable_params(self.0)),
                list(EVP_KDF_CTX_gettable_params(self.0)),
            ]
        }
    }
}

impl Drop for Kdf {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { EVP_KDF_CTX_free(self.0) };
    }
}

const END: OSSL_PARAM = OSSL_PARAM {
    key: std::ptr::null(),
    data_type: 0,
    data: std::ptr::null_mut(),
    data_size: 0,
    return_size: 0,
};

/// An array that points into `settings`.
fn params(settings: &[Setting]) -> Vec<OSSL_PARAM> {
    let one = |setting: &Setting| {
        let (data_type, data, data_size): (u32, *const c_void, usize) = match &setting.value {
            Value::Text(text) => (UTF8_STRING, text.as_ptr().cast(), text.count_bytes()),
            Value::Number(number) => {
                let number = std::ptr::from_ref(number);
                (INTEGER, number.cast(), size_of::<c_int>())
            }
            Value::Octets(bytes) => (OCTET_STRING, bytes.as_ptr().cast(), bytes.len()),
            Value::Null => (OCTET_STRING, std::ptr::null(), 0),
        };
        OSSL_PARAM {
            key: setting.name.as_ptr(),
            data_type,
            data: data.cast_mut(),
            data_size,
            return_size: usize::MAX,
        }
    };
    settings.iter().map(one).chain([END]).collect()
}

/// # Safety
/// `params` must be an array that ends.
unsafe fn list(params: *const OSSL_PARAM) -> Vec<(String, u32)> {
    // SAFETY: the caller's promise.
    let entry = |index| unsafe { &*params.add(index) };
    (0..)
        .map(entry)
        .take_while(|param| !param.key.is_null())
        .map(|param| {
            // SAFETY: names are texts that end with NUL.
            let name = unsafe { CStr::from_ptr(param.key) };
            (name.to_string_lossy().into_owned(), param.data_type)
        })
        .collect()
}
