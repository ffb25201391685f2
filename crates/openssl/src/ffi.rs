//! The part of OpenSSL's provider ABI that this crate uses.
//!
//! It was written by hand from the headers of OpenSSL 3.0 (`core.h`, `core_dispatch.h`,
//! `core_names.h`, `params.h`); the numbers and layouts are frozen for OpenSSL 3 and unchanged in
//! 4.0. Do not take it from the headers of 4.0, which lack some aliases. Layouts are asserted
//! below.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{align_of, offset_of, size_of};

/// `OSSL_CORE_HANDLE`: names the provider to the core.
#[repr(C)]
pub struct CoreHandle {
    opaque: [u8; 0],
}

/// `OSSL_DISPATCH`: one function of a table that ends with `function_id` 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dispatch {
    /// One of the `OSSL_FUNC_*` numbers.
    pub function_id: c_int,
    /// The function, without its type.
    pub function: Option<unsafe extern "C" fn()>,
}

/// `OSSL_ALGORITHM`: one algorithm of a table that ends with null names.
#[repr(C)]
pub struct Algorithm {
    /// Names separated by colons.
    pub names: *const c_char,
    /// A property definition.
    pub properties: *const c_char,
    /// A table of functions.
    pub implementation: *const Dispatch,
    /// A description for people; may be null.
    pub description: *const c_char,
}

/// `OSSL_PARAM`: one parameter of an array that ends with a null key.
#[repr(C)]
pub struct Param {
    /// Its name.
    pub key: *const c_char,
    /// One of [`INTEGER`], [`UNSIGNED_INTEGER`], [`UTF8_STRING`], [`OCTET_STRING`],
    /// [`UTF8_PTR`] and others.
    pub data_type: c_uint,
    /// The value, or room for it.
    pub data: *mut c_void,
    /// Bytes at `data`.
    pub data_size: usize,
    /// The length of the value in bytes; [`UNMODIFIED`] until there is an answer.
    pub return_size: usize,
}

/// `OSSL_ITEM`: a number with its text, of an array that ends with the number 0.
#[repr(C)]
pub struct Item {
    /// The number.
    pub id: c_uint,
    /// The text, which ends with NUL.
    pub text: *const c_char,
}

/// `OSSL_CALLBACK`.
pub type Callback = unsafe extern "C" fn(params: *const Param, argument: *mut c_void) -> c_int;

/// `OSSL_PARAM_INTEGER`.
pub const INTEGER: c_uint = 1;
/// `OSSL_PARAM_UNSIGNED_INTEGER`, of any length, in the byte order of the machine.
pub const UNSIGNED_INTEGER: c_uint = 2;
/// `OSSL_PARAM_UTF8_STRING`.
pub const UTF8_STRING: c_uint = 4;
/// `OSSL_PARAM_OCTET_STRING`.
pub const OCTET_STRING: c_uint = 5;
/// `OSSL_PARAM_UTF8_PTR`.
pub const UTF8_PTR: c_uint = 6;
/// `OSSL_PARAM_UNMODIFIED`.
pub const UNMODIFIED: usize = usize::MAX;

/// `OSSL_OP_KDF`.
pub const OP_KDF: c_int = 4;
/// `OSSL_OP_KEYMGMT`.
pub const OP_KEYMGMT: c_int = 10;
/// `OSSL_OP_KEYEXCH`.
pub const OP_KEYEXCH: c_int = 11;
/// `OSSL_OP_SIGNATURE`.
pub const OP_SIGNATURE: c_int = 12;
/// `OSSL_OP_ASYM_CIPHER`.
pub const OP_ASYM_CIPHER: c_int = 13;

/// `OSSL_KEYMGMT_SELECT_PRIVATE_KEY`.
pub const SELECT_PRIVATE_KEY: c_int = 1;
/// `OSSL_KEYMGMT_SELECT_PUBLIC_KEY`.
pub const SELECT_PUBLIC_KEY: c_int = 2;
/// `OSSL_KEYMGMT_SELECT_KEYPAIR`.
pub const SELECT_KEYPAIR: c_int = 3;
/// `OSSL_KEYMGMT_SELECT_DOMAIN_PARAMETERS`.
pub const SELECT_DOMAIN_PARAMETERS: c_int = 4;
/// `OSSL_KEYMGMT_SELECT_OTHER_PARAMETERS`.
pub const SELECT_OTHER_PARAMETERS: c_int = 0x80;

/// `RSA_PKCS1_PADDING`.
pub const RSA_PKCS1_PADDING: c_int = 1;
/// `RSA_PKCS1_PSS_PADDING`.
pub const RSA_PKCS1_PSS_PADDING: c_int = 6;
/// `RSA_PKCS1_WITH_TLS_PADDING`.
pub const RSA_PKCS1_WITH_TLS_PADDING: c_int = 7;

const _: () = {
    assert!(size_of::<Dispatch>() == 16 && align_of::<Dispatch>() == 8);
    assert!(offset_of!(Dispatch, function) == 8);
    assert!(size_of::<Algorithm>() == 32 && align_of::<Algorithm>() == 8);
    assert!(offset_of!(Algorithm, properties) == 8);
    assert!(offset_of!(Algorithm, implementation) == 16);
    assert!(offset_of!(Algorithm, description) == 24);
    assert!(size_of::<Param>() == 40 && align_of::<Param>() == 8);
    assert!(offset_of!(Param, data_type) == 8);
    assert!(offset_of!(Param, data) == 16);
    assert!(offset_of!(Param, data_size) == 24);
    assert!(offset_of!(Param, return_size) == 32);
    assert!(size_of::<Item>() == 16 && offset_of!(Item, text) == 8);
};

impl Dispatch {
    /// Ends a table.
    pub const END: Dispatch = Dispatch {
        function_id: 0,
        function: None,
    };
}

impl Algorithm {
    /// Ends a table.
    pub const END: Algorithm = Algorithm {
        names: std::ptr::null(),
        properties: std::ptr::null(),
        implementation: std::ptr::null(),
        description: std::ptr::null(),
    };
}

impl Item {
    /// Ends an array.
    pub const END: Item = Item {
        id: 0,
        text: std::ptr::null(),
    };
}

impl Param {
    /// Ends an array.
    pub const END: Param = Param {
        key: std::ptr::null(),
        data_type: 0,
        data: std::ptr::null_mut(),
        data_size: 0,
        return_size: 0,
    };
}

/// A table for OpenSSL, which only ever reads it.
#[repr(transparent)]
pub struct Table<T, const N: usize>(pub [T; N]);

// SAFETY: the pointers in these tables point to constants and functions, which never change.
unsafe impl<const N: usize> Sync for Table<Dispatch, N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Table<Algorithm, N> {}
// SAFETY: as above; the texts are constants.
unsafe impl<const N: usize> Sync for Table<Item, N> {}
// SAFETY: as above; tables of parameters describe types and hold no data pointers.
unsafe impl<const N: usize> Sync for Table<Param, N> {}

/// Declares the functions of one operation as a structure of typed pointers. `read` fills it from a
/// dispatch table, `table` makes a dispatch table of it. Optional functions may be missing.
macro_rules! functions {
    (
        $(#[$meta:meta])*
        pub struct $name:ident: [$($capability:ident)+] $functions:tt
    ) => {
        functions! { @structure $(#[$meta])* $name $functions }
        $(functions! { @$capability $name $functions })+
    };
    (
        @structure
        $(#[$meta:meta])*
        $name:ident {
            $($id:literal $field:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*
            optional:
            $($opt_id:literal $opt_field:ident: fn($($opt_argument:ty),*) $(-> $opt_result:ty)?;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $(pub(crate) $opt_field:
                Option<unsafe extern "C" fn($($opt_argument),*) $(-> $opt_result)?>,)*
        }
    };
    (
        @read
        $name:ident {
            $($id:literal $field:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*
            optional:
            $($opt_id:literal $opt_field:ident: fn($($opt_argument:ty),*) $(-> $opt_result:ty)?;)*
        }
    ) => {
        impl $name {
            /// Reads a table; `None` if a function that is not optional is missing.
            ///
            /// # Safety
            /// `table` must be a dispatch table of this operation.
            pub(crate) unsafe fn read(table: *const Dispatch) -> Option<Self> {
                $(let mut $field = None;)*
                $(let mut $opt_field = None;)*
                // SAFETY: the caller's promise; tables end with the number 0.
                for entry in unsafe { entries(table) } {
                    match entry.function_id {
                        $($id => $field = entry.function,)*
                        $($opt_id => $opt_field = entry.function,)*
                        _ => {}
                    }
                }
                // SAFETY: the number of a function determines its type (core_dispatch.h).
                Some(unsafe {
                    Self {
                        $($field: std::mem::transmute::<
                            unsafe extern "C" fn(),
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >($field?),)*
                        $($opt_field: std::mem::transmute::<
                            Option<unsafe extern "C" fn()>,
                            Option<unsafe extern "C" fn($($opt_argument),*) $(-> $opt_result)?>,
                        >($opt_field),)*
                    }
                })
            }
        }
    };
    (
        @table
        $name:ident {
            $($id:literal $field:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*
            optional:
            $($opt_id:literal $opt_field:ident: fn($($opt_argument:ty),*) $(-> $opt_result:ty)?;)*
        }
    ) => {
        impl $name {
            /// Room for every function and the end of the table.
            pub(crate) const LENGTH: usize = [$($id,)* $($opt_id,)* 0].len();

            /// These functions as a table for OpenSSL.
            pub(crate) const fn table(&self) -> Table<Dispatch, { $name::LENGTH }> {
                // Optional functions that are missing leave room for more than one end.
                let mut table = [Dispatch::END; $name::LENGTH];
                let mut next = 0;
                $(
                    // SAFETY: function pointers have one size; OpenSSL casts it back to the type
                    // that belongs to the number.
                    let function = unsafe {
                        std::mem::transmute::<
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            unsafe extern "C" fn(),
                        >(self.$field)
                    };
                    table[next] = Dispatch { function_id: $id, function: Some(function) };
                    next += 1;
                )*
                $(
                    if let Some(function) = self.$opt_field {
                        // SAFETY: as above.
                        let function = unsafe {
                            std::mem::transmute::<
                                unsafe extern "C" fn($($opt_argument),*) $(-> $opt_result)?,
                                unsafe extern "C" fn(),
                            >(function)
                        };
                        table[next] = Dispatch { function_id: $opt_id, function: Some(function) };
                        next += 1;
                    }
                )*
                assert!(next < $name::LENGTH);
                Table(table)
            }
        }
    };
}

functions! {
    /// Functions that the core offers to a provider (`OSSL_FUNC_CORE_*`).
    pub struct Core: [read] {
        2 get_params: fn(*const CoreHandle, *mut Param) -> c_int;
        optional:
        5 new_error: fn(*const CoreHandle);
        // Handle, reason, format and a `va_list`, which is a pointer in the System V ABI of x86-64.
        7 vset_error: fn(*const CoreHandle, u32, *const c_char, *mut c_void);
    }
}

functions! {
    /// Functions that a provider offers to the core (`OSSL_FUNC_PROVIDER_*`).
    pub struct Provider: [table] {
        1024 teardown: fn(*mut c_void);
        1025 gettable_params: fn(*mut c_void) -> *const Param;
        1026 get_params: fn(*mut c_void, *mut Param) -> c_int;
        1027 query_operation: fn(*mut c_void, c_int, *mut c_int) -> *const Algorithm;
        1029 get_reason_strings: fn(*mut c_void) -> *const Item;
        1030 get_capabilities:
            fn(*mut c_void, *const c_char, Option<Callback>, *mut c_void) -> c_int;
        optional:
    }
}

functions! {
    /// Key management (`OSSL_FUNC_KEYMGMT_*`).
    pub struct Keymgmt: [read table] {
        1 new: fn(*mut c_void) -> *mut c_void;
        2 gen_init: fn(*mut c_void, c_int, *const Param) -> *mut c_void;
        4 gen_set_params: fn(*mut c_void, *const Param) -> c_int;
        5 gen_settable_params: fn(*mut c_void, *mut c_void) -> *const Param;
        6 generate: fn(*mut c_void, Option<Callback>, *mut c_void) -> *mut c_void;
        7 gen_cleanup: fn(*mut c_void);
        10 free: fn(*mut c_void);
        11 get_params: fn(*mut c_void, *mut Param) -> c_int;
        12 gettable_params: fn(*mut c_void) -> *const Param;
        21 has: fn(*const c_void, c_int) -> c_int;
        22 validate: fn(*const c_void, c_int, c_int) -> c_int;
        23 matches: fn(*const c_void, *const c_void, c_int) -> c_int;
        40 import: fn(*mut c_void, c_int, *const Param) -> c_int;
        42 export: fn(*mut c_void, c_int, Option<Callback>, *mut c_void) -> c_int;
        44 dup: fn(*const c_void, c_int) -> *mut c_void;
        optional:
        3 gen_set_template: fn(*mut c_void, *mut c_void) -> c_int;
        13 set_params: fn(*mut c_void, *const Param) -> c_int;
        14 settable_params: fn(*mut c_void) -> *const Param;
        20 query_operation_name: fn(c_int) -> *const c_char;
        41 import_types: fn(c_int) -> *const Param;
        43 export_types: fn(c_int) -> *const Param;
    }
}

functions! {
    /// Key derivation (`OSSL_FUNC_KDF_*`).
    pub struct Kdf: [read table] {
        1 newctx: fn(*mut c_void) -> *mut c_void;
        3 freectx: fn(*mut c_void);
        4 reset: fn(*mut c_void);
        5 derive: fn(*mut c_void, *mut u8, usize, *const Param) -> c_int;
        7 gettable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        8 settable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        10 get_ctx_params: fn(*mut c_void, *mut Param) -> c_int;
        11 set_ctx_params: fn(*mut c_void, *const Param) -> c_int;
        optional:
        2 dupctx: fn(*mut c_void) -> *mut c_void;
    }
}

functions! {
    /// Key exchange (`OSSL_FUNC_KEYEXCH_*`).
    pub struct Keyexch: [read table] {
        1 newctx: fn(*mut c_void) -> *mut c_void;
        2 init: fn(*mut c_void, *mut c_void, *const Param) -> c_int;
        3 derive: fn(*mut c_void, *mut u8, *mut usize, usize) -> c_int;
        4 set_peer: fn(*mut c_void, *mut c_void) -> c_int;
        5 freectx: fn(*mut c_void);
        6 dupctx: fn(*mut c_void) -> *mut c_void;
        optional:
        7 set_ctx_params: fn(*mut c_void, *const Param) -> c_int;
        8 settable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        9 get_ctx_params: fn(*mut c_void, *mut Param) -> c_int;
        10 gettable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
    }
}

functions! {
    /// Signatures (`OSSL_FUNC_SIGNATURE_*`).
    pub struct Signature: [read table] {
        1 newctx: fn(*mut c_void, *const c_char) -> *mut c_void;
        2 sign_init: fn(*mut c_void, *mut c_void, *const Param) -> c_int;
        3 sign: fn(*mut c_void, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        4 verify_init: fn(*mut c_void, *mut c_void, *const Param) -> c_int;
        5 verify: fn(*mut c_void, *const u8, usize, *const u8, usize) -> c_int;
        8 digest_sign_init: fn(*mut c_void, *const c_char, *mut c_void, *const Param) -> c_int;
        9 digest_sign_update: fn(*mut c_void, *const u8, usize) -> c_int;
        10 digest_sign_final: fn(*mut c_void, *mut u8, *mut usize, usize) -> c_int;
        12 digest_verify_init: fn(*mut c_void, *const c_char, *mut c_void, *const Param) -> c_int;
        13 digest_verify_update: fn(*mut c_void, *const u8, usize) -> c_int;
        14 digest_verify_final: fn(*mut c_void, *const u8, usize) -> c_int;
        16 freectx: fn(*mut c_void);
        17 dupctx: fn(*mut c_void) -> *mut c_void;
        18 get_ctx_params: fn(*mut c_void, *mut Param) -> c_int;
        19 gettable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        20 set_ctx_params: fn(*mut c_void, *const Param) -> c_int;
        21 settable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        22 get_ctx_md_params: fn(*mut c_void, *mut Param) -> c_int;
        23 gettable_ctx_md_params: fn(*mut c_void) -> *const Param;
        24 set_ctx_md_params: fn(*mut c_void, *const Param) -> c_int;
        25 settable_ctx_md_params: fn(*mut c_void) -> *const Param;
        optional:
        6 verify_recover_init: fn(*mut c_void, *mut c_void, *const Param) -> c_int;
        7 verify_recover: fn(*mut c_void, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        11 digest_sign:
            fn(*mut c_void, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
    }
}

functions! {
    /// Asymmetric encryption (`OSSL_FUNC_ASYM_CIPHER_*`).
    pub struct AsymCipher: [read table] {
        1 newctx: fn(*mut c_void) -> *mut c_void;
        2 encrypt_init: fn(*mut c_void, *mut c_void, *const Param) -> c_int;
        3 encrypt: fn(*mut c_void, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        4 decrypt_init: fn(*mut c_void, *mut c_void, *const Param) -> c_int;
        5 decrypt: fn(*mut c_void, *mut u8, *mut usize, usize, *const u8, usize) -> c_int;
        6 freectx: fn(*mut c_void);
        7 dupctx: fn(*mut c_void) -> *mut c_void;
        8 get_ctx_params: fn(*mut c_void, *mut Param) -> c_int;
        9 gettable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        10 set_ctx_params: fn(*mut c_void, *const Param) -> c_int;
        11 settable_ctx_params: fn(*mut c_void, *mut c_void) -> *const Param;
        optional:
    }
}

/// The entries of a dispatch table.
///
/// # Safety
/// `table` must point to a table that ends with the number 0 and outlives the iterator.
pub(crate) unsafe fn entries<'a>(table: *const Dispatch) -> impl Iterator<Item = &'a Dispatch> {
    // SAFETY: the caller's promise: every entry up to the one with the number 0 can be read.
    let entry = move |index| unsafe { &*table.add(index) };
    (0..).map(entry).take_while(|entry| entry.function_id != 0)
}

/// The bytes of a buffer that OpenSSL passes; `None` if it is null.
///
/// # Safety
/// `data` must be null or point to `length` bytes that do not change meanwhile.
pub(crate) unsafe fn bytes<'a>(data: *const u8, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts(data, length) })
}

/// The bytes of a buffer that OpenSSL passes to be written; `None` if it is null.
///
/// # Safety
/// `data` must be null or point to `length` bytes that are ours to write.
pub(crate) unsafe fn bytes_mut<'a>(data: *mut u8, length: usize) -> Option<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    (!data.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(data, length) })
}
