//! Arrays of `OSSL_PARAM`: to make, to read and to answer.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::marker::PhantomData;

use crate::ffi::{
    INTEGER, OCTET_STRING, Param, UNMODIFIED, UNSIGNED_INTEGER, UTF8_PTR, UTF8_STRING,
};

/// A parameter that is lent to OpenSSL, with the memory that it points to.
#[repr(transparent)]
pub(crate) struct Lent<'a> {
    param: Param,
    memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Lent<'a> {
    /// Ends an array.
    pub(crate) const END: Self = Self {
        param: Param::END,
        memory: PhantomData,
    };

    /// Room for a signed number.
    pub(crate) fn integer(key: &'static CStr, value: &'a mut c_int) -> Self {
        Self::new(
            key,
            INTEGER,
            std::ptr::from_mut(value).cast(),
            size_of::<c_int>(),
        )
    }

    /// Room for an unsigned number.
    pub(crate) fn unsigned(key: &'static CStr, value: &'a mut c_uint) -> Self {
        Self::new(
            key,
            UNSIGNED_INTEGER,
            std::ptr::from_mut(value).cast(),
            size_of::<c_uint>(),
        )
    }

    /// An unsigned number of any length in the byte order of the machine.
    pub(crate) fn big_number(key: &'static CStr, bytes: &'a mut [u8]) -> Self {
        Self::new(key, UNSIGNED_INTEGER, bytes.as_mut_ptr(), bytes.len())
    }

    /// Room for a size.
    pub(crate) fn size(key: &'static CStr, value: &'a mut usize) -> Self {
        Self::new(
            key,
            UNSIGNED_INTEGER,
            std::ptr::from_mut(value).cast(),
            size_of::<usize>(),
        )
    }

    /// Bytes, or room for them.
    pub(crate) fn octets(key: &'static CStr, bytes: &'a mut [u8]) -> Self {
        Self::new(key, OCTET_STRING, bytes.as_mut_ptr(), bytes.len())
    }

    /// Room for a text, which OpenSSL ends with NUL.
    pub(crate) fn text(key: &'static CStr, buffer: &'a mut [u8]) -> Self {
        Self::new(key, UTF8_STRING, buffer.as_mut_ptr(), buffer.len())
    }

    /// Room for a pointer to a text that OpenSSL owns.
    pub(crate) fn text_pointer(key: &'static CStr, pointer: &'a mut *const c_char) -> Self {
        Self::new(key, UTF8_PTR, std::ptr::from_mut(pointer).cast(), 0)
    }

    /// The number of bytes in the answer; `None` without an answer.
    pub(crate) fn answered(&self) -> Option<usize> {
        (self.param.return_size != UNMODIFIED).then_some(self.param.return_size)
    }

    /// The pointer for a function that reads or answers an array.
    pub(crate) fn as_mut_ptr(array: &mut [Self]) -> *mut Param {
        debug_assert!(array.last().is_some_and(|last| last.param.key.is_null()));
        // `repr(transparent)`: an array of these is an array of `Param`.
        array.as_mut_ptr().cast()
    }

    fn new(key: &'static CStr, data_type: c_uint, data: *mut u8, data_size: usize) -> Self {
        let param = Param {
            key: key.as_ptr(),
            data_type,
            data: data.cast(),
            data_size,
            return_size: UNMODIFIED,
        };
        Self {
            param,
            memory: PhantomData,
        }
    }
}

/// Describes a parameter in a table of parameters that can be read or set.
pub(crate) const fn describe(key: &'static CStr, data_type: c_uint) -> Param {
    Param {
        key: key.as_ptr(),
        data_type,
        data: std::ptr::null_mut(),
        data_size: 0,
        return_size: UNMODIFIED,
    }
}

/// The parameter with the name `key`, if `array` has it.
///
/// # Safety
/// `array` must be null or an array that ends with a null key and is not written meanwhile.
pub(crate) unsafe fn find<'a>(array: *const Param, key: &CStr) -> Option<&'a Param> {
    // SAFETY: the caller's promise.
    unsafe { position(array, key).map(|index| &*array.add(index)) }
}

/// The parameter with the name `key`, if `array` has it, to be answered.
///
/// # Safety
/// As for [`find`]; the array must be ours to write.
pub(crate) unsafe fn find_mut<'a>(array: *mut Param, key: &CStr) -> Option<&'a mut Param> {
    // SAFETY: the caller's promise.
    unsafe { position(array, key).map(|index| &mut *array.add(index)) }
}

/// The entries of an array.
///
/// # Safety
/// `array` must be null or an array that ends with a null key; its entries must be ours to answer,
/// and nothing else may use them meanwhile.
pub(crate) unsafe fn entries_mut<'a>(array: *mut Param) -> impl Iterator<Item = &'a mut Param> {
    let mut next = array;
    std::iter::from_fn(move || {
        // SAFETY: the caller's promise: entries up to the one with a null key can be used, each is
        // passed out once.
        let entry = unsafe { next.as_mut() }.filter(|entry| !entry.key.is_null())?;
        // SAFETY: not the last entry.
        next = unsafe { next.add(1) };
        Some(entry)
    })
}

/// # Safety
/// As for [`find`].
unsafe fn position(array: *const Param, key: &CStr) -> Option<usize> {
    if array.is_null() {
        return None;
    }
    for index in 0.. {
        // SAFETY: the caller's promise: entries up to the one with a null key can be read.
        let name = unsafe { (*array.add(index)).key };
        if name.is_null() {
            break;
        }
        // SAFETY: names are texts that end with NUL.
        if unsafe { CStr::from_ptr(name) } == key {
            return Some(index);
        }
    }
    None
}

impl Param {
    /// The bytes of an unsigned number, in the byte order of the machine.
    ///
    /// # Safety
    /// The parameter must come from a caller who gave it to be read.
    pub(crate) unsafe fn unsigned_bytes(&self) -> Option<&[u8]> {
        if self.data_type != UNSIGNED_INTEGER || self.data.is_null() {
            return None;
        }
        // SAFETY: a parameter with data has `data_size` bytes of it.
        Some(unsafe { std::slice::from_raw_parts(self.data.cast::<u8>(), self.data_size) })
    }

    /// The bytes of an octet string.
    ///
    /// # Safety
    /// As for [`Param::unsigned_bytes`].
    pub(crate) unsafe fn octets(&self) -> Option<&[u8]> {
        if self.data_type != OCTET_STRING || self.data.is_null() {
            return None;
        }
        // SAFETY: a parameter with data has `data_size` bytes of it.
        Some(unsafe { std::slice::from_raw_parts(self.data.cast::<u8>(), self.data_size) })
    }

    /// The text of a UTF-8 string.
    ///
    /// # Safety
    /// As for [`Param::unsigned_bytes`].
    pub(crate) unsafe fn utf8(&self) -> Option<&CStr> {
        // SAFETY: texts end with NUL.
        (self.data_type == UTF8_STRING && !self.data.is_null())
            .then(|| unsafe { CStr::from_ptr(self.data.cast()) })
    }

    /// Answers with bytes. Returns false if the parameter has another type, or no room for them.
    ///
    /// # Safety
    /// The parameter must come from a caller who gave it to be answered.
    pub(crate) unsafe fn answer_octets(&mut self, bytes: &[u8]) -> bool {
        // SAFETY: the caller's promise.
        self.data_type == OCTET_STRING && unsafe { self.answer_bytes(bytes, bytes.len()) }
    }

    /// Answers with an `int`. Returns false if the parameter has another type or size.
    ///
    /// # Safety
    /// The parameter must come from a caller who gave it to be answered.
    pub(crate) unsafe fn answer_int(&mut self, number: c_int) -> bool {
        // SAFETY: the caller's promise.
        self.data_type == INTEGER
            && !self.data.is_null()
            && self.data_size == size_of::<c_int>()
            && unsafe { self.answer_bytes(&number.to_ne_bytes(), size_of::<c_int>()) }
    }

    /// Answers with a copy of a text, with NUL if there is room for that. Returns false as
    /// [`Param::answer_octets`] does.
    ///
    /// # Safety
    /// The parameter must come from a caller who gave it to be answered.
    pub(crate) unsafe fn answer_utf8(&mut self, text: &CStr) -> bool {
        let length = text.count_bytes();
        let bytes = match self.data_size > length {
            true => text.to_bytes_with_nul(),
            false => text.to_bytes(),
        };
        // SAFETY: the caller's promise.
        self.data_type == UTF8_STRING && unsafe { self.answer_bytes(bytes, length) }
    }

    /// # Safety
    /// The parameter must come from a caller who gave it to be answered.
    unsafe fn answer_bytes(&mut self, bytes: &[u8], length: usize) -> bool {
        self.return_size = length;
        if self.data.is_null() {
            return true;
        }
        if self.data_size < bytes.len() {
            return false;
        }
        // SAFETY: the data has `data_size` bytes; it overlaps nothing of this provider.
        unsafe {
            let room = self.data.cast::<u8>();
            room.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        true
    }

    /// Answers with a pointer to a text, which must live as long as the provider. Returns false if
    /// the parameter has another type.
    ///
    /// # Safety
    /// The parameter must come from a caller who gave it to be answered.
    pub(crate) unsafe fn answer_text(&mut self, text: &CStr) -> bool {
        if self.data_type != UTF8_PTR {
            return false;
        }
        self.return_size = text.count_bytes();
        if !self.data.is_null() {
            // SAFETY: the data of this type is one pointer.
            unsafe { *self.data.cast::<*const c_char>() = text.as_ptr() };
        }
        true
    }

    /// Answers with a number. Returns false if the parameter has another type or size, or the
    /// number is too large for it.
    ///
    /// # Safety
    /// The parameter must come from a caller who gave it to be answered.
    pub(crate) unsafe fn answer_number(&mut self, number: u64) -> bool {
        if self.data_type != UNSIGNED_INTEGER && self.data_type != INTEGER {
            return false;
        }
        if self.data.is_null() {
            self.return_size = size_of::<u64>();
            return true;
        }
        let bytes = number.to_le_bytes();
        let size = self.data_size;
        if !(size == 4 && number <= i32::MAX as u64 || size == 8 && number <= i64::MAX as u64) {
            return false;
        }
        self.return_size = size;
        // SAFETY: the data has `data_size` bytes, which is at most 8.
        unsafe {
            self.data
                .cast::<u8>()
                .copy_from_nonoverlapping(bytes.as_ptr(), size)
        };
        true
    }
}
