//! The default provider's key derivation functions, for derivations that are not computed here.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::function::Function;
use super::settings::Settings;
use crate::ffi::{self, Param};
use crate::loaded::LoadedRef;

/// One key derivation function, as its contexts hold it.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    loaded: LoadedRef,
    pub(super) function: Function,
}

impl Shared {
    /// `None` if the function is not offered.
    pub(super) fn new(loaded: LoadedRef, function: Function) -> Option<Self> {
        loaded
            .default
            .kdfs
            .is_some()
            .then_some(Self { loaded, function })
    }

    /// The default provider's functions.
    pub(super) fn functions(&self) -> &ffi::Kdf {
        let functions = self.loaded.default.kdfs.as_ref();
        let functions = functions.expect("checked when this was made, and never changed");
        match self.function {
            Function::Tls13 => &functions.tls13,
            Function::Hkdf => &functions.hkdf,
            Function::Tls1Prf => &functions.tls1_prf,
        }
    }

    /// The provider context that they take.
    pub(super) fn provider(&self) -> *mut c_void {
        self.loaded.default.context
    }
}

/// A context of the default provider, which has taken over from ours.
pub(super) struct DefaultContext {
    shared: Shared,
    context: NonNull<c_void>,
}

impl DefaultContext {
    /// A new context with the parameters in `settings`. `None` if the default provider has no
    /// memory or refuses them.
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

    /// A copy. `None` without memory, and in OpenSSL 3.0, which cannot copy.
    pub(super) fn duplicate(&self) -> Option<Self> {
        let duplicate = self.shared.functions().dupctx?;
        // SAFETY: a context of the default provider.
        let context = NonNull::new(unsafe { duplicate(self.context.as_ptr()) })?;
        Some(Self {
            shared: self.shared,
            context,
        })
    }

    /// # Safety
    /// `output` and `length`, and `params`, must be the arguments that the core passes.
    pub(super) unsafe fn derive(
        &mut self,
        output: *mut u8,
        length: usize,
        params: *const Param,
    ) -> c_int {
        let context = self.context.as_ptr();
        // SAFETY: a context of the default provider; the caller's promise.
        unsafe { (self.shared.functions().derive)(context, output, length, params) }
    }

    /// # Safety
    /// `params` must be the arguments that the core passes.
    pub(super) unsafe fn set_params(&mut self, params: *const Param) -> c_int {
        // SAFETY: a context of the default provider; the caller's promise.
        unsafe { (self.shared.functions().set_ctx_params)(self.context.as_ptr(), params) }
    }

    /// # Safety
    /// `params` must be the arguments that the core passes.
    pub(super) unsafe fn get_params(&mut self, params: *mut Param) -> c_int {
        // SAFETY: a context of the default provider; the caller's promise.
        unsafe { (self.shared.functions().get_ctx_params)(self.context.as_ptr(), params) }
    }
}

impl Drop for DefaultContext {
    fn drop(&mut self) {
        // SAFETY: a context of the default provider with one owner.
        unsafe { (self.shared.functions().freectx)(self.context.as_ptr()) };
    }
}
