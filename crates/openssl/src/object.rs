//! Objects behind pointers: ours, as OpenSSL holds them, and the default provider's, as ours do.

use std::ffi::c_void;
use std::ptr::NonNull;

/// A key or a context of ours. OpenSSL has a pointer to it from the call that makes it to the one that frees it.
pub(crate) trait Object: Sized {
    /// The pointer for OpenSSL.
    fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// The object, to be read; `None` for null.
    ///
    /// # Safety
    /// `object` must be null or from [`Object::into_raw`] of this type, not freed yet, and nobody may change it
    /// meanwhile.
    unsafe fn borrow<'a>(object: *const c_void) -> Option<&'a Self> {
        // SAFETY: the caller's promise.
        unsafe { object.cast::<Self>().as_ref() }
    }

    /// The object, to be changed.
    ///
    /// # Safety
    /// As for [`Object::borrow`], but not null; nobody else may use it meanwhile.
    unsafe fn borrow_mut<'a>(object: *mut c_void) -> &'a mut Self {
        // SAFETY: the caller's promise.
        unsafe { &mut *object.cast::<Self>() }
    }
}

/// As [`Object::into_raw`]; null for `None`.
pub(crate) fn into_raw<T: Object>(object: Option<T>) -> *mut c_void {
    object.map_or(std::ptr::null_mut(), T::into_raw)
}

/// Frees an object, as OpenSSL calls it.
///
/// # Safety
/// `object` must be null or from [`Object::into_raw`] of this type, and is not used again.
pub(crate) unsafe extern "C" fn free<T: Object>(object: *mut c_void) {
    if !object.is_null() {
        // SAFETY: the caller's promise: it was boxed, and nobody else frees it.
        drop(unsafe { Box::from_raw(object.cast::<T>()) });
    }
}

/// A key or a context of the default provider that is ours alone; freed with this.
pub(crate) struct DefaultObject {
    data: NonNull<c_void>,
    free: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the default provider's keys are used from many threads, as OpenSSL shares them; its contexts from
// one at a time, as ours are.
unsafe impl Send for DefaultObject {}
// SAFETY: as above.
unsafe impl Sync for DefaultObject {}

impl DefaultObject {
    /// `None` if `data` is null.
    ///
    /// # Safety
    /// `data` must be null or what a function of the default provider has just made and `free` frees.
    pub(crate) unsafe fn own(
        data: *mut c_void,
        free: unsafe extern "C" fn(*mut c_void),
    ) -> Option<Self> {
        let data = NonNull::new(data)?;
        Some(Self { data, free })
    }

    /// For functions of the default provider.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.data.as_ptr()
    }
}

impl Drop for DefaultObject {
    fn drop(&mut self) {
        // SAFETY: `own`'s promise, and it is dropped once.
        unsafe { (self.free)(self.data.as_ptr()) };
    }
}
