//! The section of the provider in `openssl.cnf`.

use std::error::Error;
use std::ffi::{CStr, c_char};
use std::fmt;

use slipstream_offload::scheduler::FlushPolicy;

use crate::ffi::{self, CoreHandle};
use crate::param::Lent;

/// The settings in the section of the provider in `openssl.cnf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) lanes: Lanes,
    pub(crate) flush: FlushPolicy,
}

/// The setting `lanes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lanes {
    /// The accelerators that were chosen, or else the lanes of the CPU.
    Auto,
    /// No accelerators.
    Off,
    /// Lanes without vector instructions.
    Portable,
}

/// A setting with a value that it does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownValue {
    setting: &'static str,
    value: String,
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown value of {}: {}", self.setting, self.value)
    }
}

impl Error for UnknownValue {}

impl Configuration {
    /// Asks the core for the settings.
    ///
    /// # Errors
    /// If a setting has an unknown value.
    ///
    /// # Safety
    /// `handle` must be the one that belongs to `core`.
    pub(crate) unsafe fn read(
        core: &ffi::Core,
        handle: *const CoreHandle,
    ) -> Result<Self, UnknownValue> {
        let (mut lanes, mut flush) = (std::ptr::null(), std::ptr::null());
        let mut params = [
            Lent::text_pointer(c"lanes", &mut lanes),
            Lent::text_pointer(c"flush", &mut flush),
            Lent::END,
        ];
        // SAFETY: the caller's promise; an array that ends with a null key.
        unsafe { (core.get_params)(handle, Lent::as_mut_ptr(&mut params)) };
        // SAFETY: the core answers with texts that live as long as the provider, or not at all.
        let (lanes, flush) = unsafe { (text(lanes), text(flush)) };
        Self::parse(lanes, flush)
    }

    fn parse(lanes: Option<&str>, flush: Option<&str>) -> Result<Self, UnknownValue> {
        let unknown = |setting, value: &str| UnknownValue {
            setting,
            value: value.into(),
        };
        let lanes = match lanes {
            None | Some("auto") => Lanes::Auto,
            Some("off") => Lanes::Off,
            Some("portable") => Lanes::Portable,
            Some(other) => return Err(unknown("lanes", other)),
        };
        let flush = match flush {
            None | Some("cheapest") => FlushPolicy::Cheapest,
            Some("always") => FlushPolicy::AtLeast(1),
            Some(other) => return Err(unknown("flush", other)),
        };
        Ok(Self { lanes, flush })
    }
}

/// # Safety
/// `pointer` must be null or a text that ends with NUL and stays.
unsafe fn text<'a>(pointer: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_defaults_to_what_is_cheapest() {
        let default = Configuration {
            lanes: Lanes::Auto,
            flush: FlushPolicy::Cheapest,
        };
        assert_eq!(Configuration::parse(None, None), Ok(default));
        assert_eq!(
            Configuration::parse(Some("auto"), Some("cheapest")),
            Ok(default)
        );
        let tests = Configuration {
            lanes: Lanes::Portable,
            flush: FlushPolicy::AtLeast(1),
        };
        assert_eq!(
            Configuration::parse(Some("portable"), Some("always")),
            Ok(tests)
        );
    }

    #[test]
    fn a_misspelt_configuration_is_reported() {
        let reason = Configuration::parse(Some("of"), None).expect_err("no such value");
        assert_eq!(reason.to_string(), "unknown value of lanes: of");
        assert!(Configuration::parse(None, Some("never")).is_err());
    }
}
