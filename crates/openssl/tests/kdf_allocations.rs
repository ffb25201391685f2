//! A derivation allocates nothing, neither here nor in OpenSSL: in a process of its own, since
//! OpenSSL takes other allocation functions only before it has allocated anything.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use openssl_sys::OSSL_PARAM;
use slipstream_openssl::ffi::{CoreHandle, Dispatch};

type ProviderInit = unsafe extern "C" fn(
    *const CoreHandle,
    *const Dispatch,
    *mut *const Dispatch,
    *mut *mut c_void,
) -> c_int;

type Malloc = unsafe extern "C" fn(usize, *const c_char, c_int) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize, *const c_char, c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *const c_char, c_int);

unsafe extern "C" {
    fn CRYPTO_set_mem_functions(malloc: Malloc, realloc: Realloc, free: Free) -> c_int;
    fn OSSL_PROVIDER_add_builtin(
        library: *mut c_void,
        name: *const c_char,
        init: ProviderInit,
    ) -> c_int;
    fn OSSL_PROVIDER_load(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn EVP_KDF_fetch(
        library: *mut c_void,
        name: *const c_char,
        query: *const c_char,
    ) -> *mut c_void;
    fn EVP_KDF_free(kdf: *mut c_void);
    fn EVP_KDF_CTX_new(kdf: *mut c_void) -> *mut c_void;
    fn EVP_KDF_CTX_free(context: *mut c_void);
    fn EVP_KDF_derive(
        context: *mut c_void,
        output: *mut u8,
        length: usize,
        params: *const OSSL_PARAM,
    ) -> c_int;
}

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

struct Counting;

// SAFETY: the system's allocator, and a count that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

unsafe extern "C" fn malloc(size: usize, _file: *const c_char, _line: c_int) -> *mut c_void {
    count();
    // SAFETY: no preconditions.
    unsafe { libc::malloc(size) }
}

unsafe extern "C" fn realloc(
    memory: *mut c_void,
    size: usize,
    _file: *const c_char,
    _line: c_int,
) -> *mut c_void {
    count();
    // SAFETY: the caller's promise.
    unsafe { libc::realloc(memory, size) }
}

unsafe extern "C" fn free(memory: *mut c_void, _file: *const c_char, _line: c_int) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(memory) }
}

/// A number where OpenSSL may read it.
#[repr(align(4))]
struct Number([u8; size_of::<c_int>()]);

static EXTRACT_ONLY: Number = Number(1_i32.to_ne_bytes());
static EXPAND_ONLY: Number = Number(2_i32.to_ne_bytes());

#[test]
fn a_derivation_allocates_nothing() {
    // SAFETY: functions that allocate as the C library does; texts end with NUL; a null library
    // context is the process's own.
    unsafe {
        assert_eq!(CRYPTO_set_mem_functions(malloc, realloc, free), 1);
        let (name, init) = (c"slipstream".as_ptr(), slipstream_openssl::provider_init);
        assert_eq!(
            OSSL_PROVIDER_add_builtin(std::ptr::null_mut(), name, init),
            1
        );
        assert!(!OSSL_PROVIDER_load(std::ptr::null_mut(), c"default".as_ptr()).is_null());
        assert!(!OSSL_PROVIDER_load(std::ptr::null_mut(), name).is_null());
    }
    for (digest, length) in [(c"SHA2-256", 32), (c"SHA2-384", 48), (c"SHA2-512", 64)] {
        let digest = (c"digest", UTF8_STRING, digest.to_bytes());
        let extract = (c"mode", INTEGER, &EXTRACT_ONLY.0[..]);
        let expand = (c"mode", INTEGER, &EXPAND_ONLY.0[..]);
        let key = (c"key", OCTET_STRING, &[1; 64][..length]);
        let salt = (c"salt", OCTET_STRING, &[2; 64][..length]);
        let prefix = (c"prefix", OCTET_STRING, &b"tls13 "[..]);
        let label = (c"label", OCTET_STRING, &b"derived"[..]);
        let secret = (c"secret", OCTET_STRING, &[3; 48][..]);
        let seed = (c"seed", OCTET_STRING, &b"key expansion"[..]);
        let tls13 = c"TLS13-KDF";
        check(tls13, &[expand, digest, key, prefix, label], length);
        check(tls13, &[extract, digest, key, salt, prefix, label], length);
        check(tls13, &[extract, digest, prefix, label], length);
        check(c"HKDF", &[digest, key, salt], 300);
        check(c"TLS1-PRF", &[digest, secret, seed, seed], 104);
    }
}

/// Name, type and value of a parameter.
type Setting<'a> = (&'static CStr, c_uint, &'a [u8]);

fn check(name: &CStr, settings: &[Setting], length: usize) {
    let params: Vec<OSSL_PARAM> = settings.iter().map(param).chain([END]).collect();
    let ours = allocations(name, c"provider=slipstream", &params, length);
    assert_eq!(ours, 0, "{name:?}");
    let default = allocations(name, c"provider=default", &params, length);
    assert!(default > 0, "they are counted: {name:?}");
}

/// How many one derivation makes.
fn allocations(name: &CStr, query: &CStr, params: &[OSSL_PARAM], length: usize) -> usize {
    let mut output = vec![0; length];
    // SAFETY: texts end with NUL, the array of parameters ends, the output is as long as said.
    unsafe {
        let kdf = EVP_KDF_fetch(std::ptr::null_mut(), name.as_ptr(), query.as_ptr());
        let context = EVP_KDF_CTX_new(kdf);
        assert!(!context.is_null());
        let before = ALLOCATIONS.get();
        let derived = EVP_KDF_derive(context, output.as_mut_ptr(), length, params.as_ptr());
        let made = ALLOCATIONS.get() - before;
        assert_eq!(derived, 1, "{name:?} {query:?}");
        EVP_KDF_CTX_free(context);
        EVP_KDF_free(kdf);
        made
    }
}

const INTEGER: c_uint = 1;
const UTF8_STRING: c_uint = 4;
const OCTET_STRING: c_uint = 5;

const END: OSSL_PARAM = OSSL_PARAM {
    key: std::ptr::null(),
    data_type: 0,
    data: std::ptr::null_mut(),
    data_size: 0,
    return_size: 0,
};

/// Points to the value.
fn param(&(key, data_type, value): &Setting) -> OSSL_PARAM {
    OSSL_PARAM {
        key: key.as_ptr(),
        data_type,
        data: value.as_ptr().cast_mut().cast(),
        data_size: value.len(),
        return_size: usize::MAX,
    }
}
