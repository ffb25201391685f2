//! The default provider's key derivation functions, for all that is not computed here.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;

use crate::ffi::{self, Param};
use crate::kdf::Function;
use crate::kdf::derivation::AllKnown;
use crate::kdf::settings::Settings;
use crate::provider::LoadedRef;

/// What the key derivations of one loaded provider share.
pub(crate) struct Kdfs {
    functions: [ffi::Kdf; Function::ALL.len()],
    pub(super) known: AllKnown,
}

impl Kdfs {
    /// With the functions that `find` finds by their names; `None` if one is missing.
    pub(crate) fn new(find: impl Fn(&CStr) -> Option<ffi::Kdf>) -> Option<Self> {
        let [tls13, hkdf, tls1_prf] = Function::ALL.map(|function| find(function.name()));
        Some(Self {
            functions: [tls13?, hkdf?, tls1_prf?],
            known: AllKnown::new(),
        })
    }
}

/// One key derivation function, as its contexts hold it.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    loaded: LoadedRef,
    pub(super) function: Function,
}

impl Shared {
    /// `None` if it is not offered.
    pub(super) fn new(loaded: LoadedRef, function: Function) -> Option<Self> {
        loaded
            .default
            .kdfs
            .is_some()
            .then_some(Self { loaded, function })
    }

    pub(super) fn known(&self) -> &AllKnown {
        &self.kdfs().known
    }

    /// The default provider's functions.
    pub(super) fn functions(&self) -> &ffi::Kdf {
        &self.kdfs().functions[self.function as usize]
    }

    /// What they want as provider context.
    pub(super) fn provider(&self) -> *mut c_void {
        self.loaded.default.context
    }

    fn kdfs(&self) -> &Kdfs {
        let kdfs = self.loaded.default.kdfs.as_ref();
        kdfs.expect("checked when this was made, and never changed")
    }
}

/// A context of the default provider, which has taken over from ours.
pub(super) struct DefaultContext {
    shared: Shared,
    context: NonNull<c_void>,
}

impl DefaultContext {
    /// One that has been set to the same. `None` if it has no memory or refuses.
    pub(super) fn new(shared: Shared, settings: &Settings) -> Option<Self> {
        let functions = shared.functions();
        // SAFETY: the default provider's own context.
        let context = NonNull::new(unsafe { (functions.newctx)(shared.provider()) })?;
        let new = Self { shared, context };
        let set = settings.as_params(shared.function, |params| {
            // SAFETY: the context just made, and an array that ends with a null key.
            unsafe { (functions.set_ctx_params)(context.as_ptr(), params) }
        });
        set.is_none_or(|set| set == 1).then_some(new)
    }

    /// `None` if it has no memory, or cannot: OpenSSL 3.0.
    pub(super) fn duplicate(&self) -> Option<Self> {
        let duplicate = self.shared.functions().dupctx?;
        // SAFETY: a context of this provider.
        let context = NonNull::new(unsafe { duplicate(self.context.as_ptr()) })?;
        Some(Self {
            shared: self.shared,
            context,
        })
    }

    /// # Safety
    /// `output` and `length`, and `params`, must be what the core passes.
    pub(super) unsafe fn derive(
        &mut self,
        output: *mut u8,
        length: usize,
        params: *const Param,
    ) -> c_int {
        let context = self.context.as_ptr();
        // SAFETY: a context of this provider; the caller's promise.
        unsafe { (self.shared.functions().derive)(context, output, length, params) }
    }

    /// # Safety
    /// `params` must be what the core passes.
    pub(super) unsafe fn set_params(&mut self, params: *const Param) -> c_int {
        // SAFETY: a context of this provider; the caller's promise.
        unsafe { (self.shared.functions().set_ctx_params)(self.context.as_ptr(), params) }
    }

    /// # Safety
    /// `params` must be what the core passes.
    pub(super) unsafe fn get_params(&mut self, params: *mut Param) -> c_int {
        // SAFETY: a context of this provider; the caller's promise.
        unsafe { (self.shared.functions().get_ctx_params)(self.context.as_ptr(), params) }
    }
}

impl Drop for DefaultContext {
    fn drop(&mut self) {
        // SAFETY: a context of this provider that is ours alone.
        unsafe { (self.shared.functions().freectx)(self.context.as_ptr()) };
    }
}
