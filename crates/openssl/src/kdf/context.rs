//! A key derivation as OpenSSL holds it.

use std::ffi::c_void;

use super::default::{DefaultContext, Shared};
use super::derivation;
use super::settings::{Mode, Settings};
use crate::ffi::Param;

/// A key derivation as OpenSSL holds it.
pub(super) struct Context {
    shared: Shared,
    /// The parameters that have been set; empty once there is a `default`.
    settings: Settings,
    default: Option<DefaultContext>,
}

impl Context {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            settings: Settings::new(),
            default: None,
        }
    }

    /// # Safety
    /// `context` must be a context that this module made and that has not been freed, and nothing
    /// else may use it meanwhile.
    pub(super) unsafe fn borrow<'a>(context: *mut c_void) -> &'a mut Self {
        // SAFETY: the caller's promise.
        unsafe { &mut *context.cast::<Self>() }
    }

    /// The default provider's context, which does everything from now on. `None` if it has no
    /// memory or refuses the parameters.
    pub(super) fn default(&mut self) -> Option<&mut DefaultContext> {
        if self.default.is_none() {
            self.default = Some(DefaultContext::new(self.shared, &self.settings)?);
            self.settings.clear();
        }
        self.default.as_mut()
    }

    pub(super) fn reset(&mut self) {
        self.default = None;
        self.settings.clear();
    }

    pub(super) fn duplicate(&self) -> Option<Box<Self>> {
        let default = match &self.default {
            Some(default) => Some(default.duplicate()?),
            None => None,
        };
        let mut copy = Box::new(Self {
            shared: self.shared,
            settings: Settings::new(),
            default,
        });
        copy.settings.copy_from(&self.settings);
        Some(copy)
    }

    /// Fills `output` from the parameters that have been set. Returns false, with nothing written,
    /// if the default provider has to derive.
    pub(super) fn derive(&self, output: &mut [u8]) -> bool {
        derivation::derive(self.shared.function, &self.settings, output)
    }

    /// Takes over `params`. Returns false, with nothing changed, if the default provider has to
    /// take them.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key and is not written meanwhile.
    pub(super) unsafe fn set(&mut self, params: *const Param) -> bool {
        if self.default.is_some() {
            return false;
        }
        // SAFETY: the caller's promise.
        params.is_null() || unsafe { self.settings.set(self.shared.function, params) }
    }

    /// The number of bytes that a derivation yields, `usize::MAX` if the caller decides. `None` if
    /// only the default provider can tell.
    pub(super) fn size(&self) -> Option<usize> {
        if self.default.is_some() {
            return None;
        }
        if self.settings.mode() == Mode::ExtractOnly {
            return Some(self.settings.hash()?.length());
        }
        Some(usize::MAX)
    }
}
