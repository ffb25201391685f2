//! Objects behind pointers: objects of this provider, which OpenSSL holds, and objects of the
//! default provider, which this provider holds.

use std::ffi::c_void;
use std::ptr::NonNull;

/// A key or a context of this provider. OpenSSL has a pointer to it from the call that makes it to
/// the call that frees it.
pub(crate) trait Object: Sized {
    /// Moves the object to the heap, and returns the pointer for OpenSSL.
    fn into_raw(self) -> *mut c_void {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Borrows the object behind a pointer; `None` for null.
    ///
    /// # Safety
    /// `object` must be null or from [`Object::into_raw`] of this type, not freed yet, and it
    /// must not change meanwhile.
    unsafe fn borrow<'a>(object: *const c_void) -> Option<&'a Self> {
        // SAFETY: the caller's promise.
        unsafe { object.cast::<Self>().as_ref() }
    }

    /// Borrows the object behind a pointer, to change it.
    ///
    /// # Safety
    /// As for [`Object::borrow`], but not null; nothing else may use it meanwhile.
    unsafe fn borrow_mut<'a>(object: *mut c_void) -> &'a mut Self {
        // SAFETY: the caller's promise.
        unsafe { &mut *object.cast::<Self>() }
    }
}

/// Returns the pointer of [`Object::into_raw`]; null for `None`.
pub(crate) fn into_raw<T: Object>(object: Option<T>) -> *mut c_void {
    object.map_or(std::ptr::null_mut(), T::into_raw)
}

/// Frees an object: a function for OpenSSL.
///
/// # Safety
/// `object` must be null or from [`Object::into_raw`] of this type, and is not used again.
pub(crate) unsafe extern "C" fn free<T: Object>(object: *mut c_void) {
    if !object.is_null() {
        // SAFETY: the caller's promise: it was boxed, and is freed once.
        drop(unsafe { Box::from_raw(object.cast::<T>()) });
    }
}

/// A key or a context of the default provider with one owner, which is freed on drop.
pub(crate) struct DefaultObject {
    data: NonNull<c_void>,
    free: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the default provider's keys are used from many threads, as OpenSSL shares them; its
// contexts from one thread at a time.
unsafe impl Send for DefaultObject {}
// SAFETY: as above.
unsafe impl Sync for DefaultObject {}

impl DefaultObject {
    /// Takes over `data`; `None` if it is null.
    ///
    /// # Safety
    /// `data` must be null or an object that a function of the default provider has just made, and
    /// that `free` frees.
    pub(crate) unsafe fn own(
        data: *mut c_void,
        free: unsafe extern "C" fn(*mut c_void),
    ) -> Option<Self> {
        let data = NonNull::new(data)?;
        Some(Self { data, free })
    }

    /// The pointer for functions of the default provider.
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
