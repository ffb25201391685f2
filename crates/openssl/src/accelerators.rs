//! The choice of accelerators for this process.

use std::sync::{Mutex, MutexGuard, PoisonError};

use slipstream_accelerators::lanes::Backend;

/// The accelerators of the instances that event loops make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accelerators {
    /// The implementation of lanes; `None` without lanes.
    pub backend: Option<Backend>,
    /// True if there is a device.
    pub has_device: bool,
}

/// Sets the choice, and returns the one before: see [`crate::set_accelerators`].
pub(crate) fn set_accelerators(accelerators: Option<Accelerators>) -> Option<Accelerators> {
    std::mem::replace(&mut *chosen(), accelerators)
}

/// The choice; `None` until there is one.
pub(crate) fn chosen() -> MutexGuard<'static, Option<Accelerators>> {
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

static CHOSEN: Mutex<Option<Accelerators>> = Mutex::new(None);
