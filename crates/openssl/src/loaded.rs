//! A loaded provider: its configuration, its accelerators, and the default provider behind it.

use std::error::Error;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::Duration;

use slipstream_accelerators::lanes::{self, Backend, LaneCosts, Measured, calibrate, prove};
use slipstream_keys::{Group, PrivateKey};
use slipstream_offload::Kind;
use slipstream_offload::scheduler::FlushPolicy;

use crate::accelerators::chosen;
use crate::configuration::{Configuration, Lanes, UnknownValue};
use crate::default_provider::{self, DefaultProvider};
use crate::failure::Errors;
use crate::ffi::{self, CoreHandle, Dispatch};
use crate::libcrypto::{Libcrypto, Unavailable};
use crate::software_cost::measure_software;

/// A provider as the core holds it; its address is the provider context.
pub(crate) struct Provider {
    status: CString,
    /// `None` if nothing is offered.
    loaded: Option<Box<Loaded>>,
}

impl Provider {
    /// Loads the configuration and the default provider. If that fails, nothing is offered, and the
    /// [status](Self::status) says why.
    ///
    /// # Safety
    /// As for [`crate::provider_init`].
    pub(crate) unsafe fn load(handle: *const CoreHandle, core: *const Dispatch) -> Self {
        // SAFETY: the caller's promise.
        let (status, loaded) = match unsafe { Loaded::load(handle, core) } {
            Ok(loaded) => (loaded.status(), Some(Box::new(loaded))),
            Err(error) => {
                let status = format!("everything stays with the default provider: {error}");
                (status, None)
            }
        };
        if let Some(loaded) = &loaded {
            registry().push(LoadedRef::from(loaded));
        }
        Self {
            status: CString::new(status).unwrap_or_default(),
            loaded,
        }
    }

    /// The loaded provider that keys and contexts share, from the provider context that the core
    /// passes; `None` if nothing is offered.
    ///
    /// # Safety
    /// `context` must be the context that [`crate::provider_init`] gave to the core.
    pub(crate) unsafe fn loaded(context: *mut c_void) -> Option<LoadedRef> {
        // SAFETY: the caller's promise; a provider is only ever shared until its teardown.
        let provider = unsafe { &*context.cast::<Provider>() };
        provider.loaded.as_ref().map(LoadedRef::from)
    }

    /// One line for people: the operations that are offered, or the reason why nothing is.
    pub(crate) fn status(&self) -> &CStr {
        &self.status
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(loaded) = &self.loaded {
            let gone = LoadedRef::from(loaded).0;
            registry().retain(|loaded| loaded.0 != gone);
        }
    }
}

/// The provider that was loaded last.
pub(crate) fn last_loaded() -> Option<LoadedRef> {
    registry().last().copied()
}

/// Measures software: see [`crate::software_cost()`].
pub(crate) fn software_cost(kind: Kind) -> Option<Duration> {
    // Locked meanwhile, so that the provider is not unloaded.
    measure_software(&registry().last()?.default, kind)
}

/// The loaded providers that offer something.
fn registry() -> MutexGuard<'static, Vec<LoadedRef>> {
    static LOADED: Mutex<Vec<LoadedRef>> = Mutex::new(Vec::new());
    LOADED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A [`Loaded`] as its keys and contexts hold it. The core keeps a provider alive as long as any
/// of its algorithms, and those as long as any of their keys and contexts.
#[derive(Clone, Copy)]
pub(crate) struct LoadedRef(NonNull<Loaded>);

// SAFETY: everything in `Loaded` that changes is atomic or behind a `OnceLock`; the functions of
// the default provider and of libcrypto may be called from any thread.
unsafe impl Send for LoadedRef {}
// SAFETY: as above.
unsafe impl Sync for LoadedRef {}

impl From<&Box<Loaded>> for LoadedRef {
    fn from(loaded: &Box<Loaded>) -> Self {
        Self(NonNull::from(&**loaded))
    }
}

impl Deref for LoadedRef {
    type Target = Loaded;

    fn deref(&self) -> &Loaded {
        // SAFETY: see the type: it outlives the holder of this reference. It is only ever shared.
        unsafe { self.0.as_ref() }
    }
}

/// A provider that offers something. Its keys and contexts share it.
pub(crate) struct Loaded {
    pub(crate) default: DefaultProvider,
    pub(crate) errors: Errors,
    configuration: Configuration,
    costs: OnceLock<Measured>,
}

impl Loaded {
    /// The lanes to compute with; `None` if there are none.
    pub(crate) fn backend(&self) -> Option<Backend> {
        match self.configuration.lanes {
            Lanes::Auto => match *chosen() {
                Some(accelerators) => accelerators.backend,
                None => Backend::detect(),
            },
            Lanes::Off => None,
            Lanes::Portable => Some(Backend::Portable),
        }
    }

    /// Returns true if there are accelerators for operations with `key`. Prepares the key for
    /// lanes, once, if there are any.
    pub(crate) fn prepare(&self, key: &PrivateKey) -> bool {
        let has_lanes = self
            .backend()
            .is_some_and(|backend| lanes::prepare(backend, key));
        has_lanes || self.has_device()
    }

    /// Returns true if any operation may be offloaded.
    pub(crate) fn has_accelerators(&self) -> bool {
        self.backend().is_some() || self.has_device()
    }

    /// Returns true if operations on curves may be offloaded, too.
    pub(crate) fn offers_curves(&self) -> bool {
        // Not all, since lanes that fail the test of one kind go on with the others.
        let computes = |backend| {
            Group::ALL
                .into_iter()
                .any(|group| lanes::computes(backend, Kind::exchange(group)))
        };
        let is_computed = self.backend().is_some_and(computes) || self.has_device();
        is_computed && self.default.curves.is_some()
    }

    /// The flush policy of an instance that is made here.
    pub(crate) fn flush(&self) -> FlushPolicy {
        self.configuration.flush
    }

    /// The costs of batches and of software on this machine, measured at the first call. Lanes are
    /// tested first.
    pub(crate) fn costs(&self, backend: Backend) -> Measured {
        static COMPLAINT: Once = Once::new();
        if let Some(complaint) = prove(backend) {
            // A provider has no log of its own.
            COMPLAINT.call_once(|| eprintln!("slipstream: {complaint}"));
        }
        match self.configuration.flush {
            FlushPolicy::Cheapest => *self.costs.get_or_init(|| {
                calibrate(Some(backend), |kind| measure_software(&self.default, kind))
            }),
            // This policy reads no costs, and measuring slow lanes takes long.
            FlushPolicy::AtLeast(_) => Measured {
                lanes: LaneCosts::unknown(backend),
                ..Measured::default()
            },
        }
    }

    fn has_device(&self) -> bool {
        let is_chosen = chosen().is_some_and(|accelerators| accelerators.has_device);
        is_chosen && self.configuration.lanes == Lanes::Auto
    }

    fn status(&self) -> String {
        match self.backend() {
            Some(backend) if self.offers_curves() => {
                format!("RSA and curves in lanes ({})", backend.name())
            }
            Some(backend) => format!("RSA in lanes ({})", backend.name()),
            None if self.has_device() => "RSA and curves at a device".into(),
            None if self.configuration.lanes == Lanes::Off => "lanes are switched off".into(),
            None => "RSA in software: this CPU has no lanes".into(),
        }
    }

    /// # Safety
    /// As for [`crate::provider_init`].
    unsafe fn load(handle: *const CoreHandle, core: *const Dispatch) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let core = unsafe { ffi::Core::read(core) }.ok_or(LoadError::NoParameters)?;
        // SAFETY: the core's own handle.
        let configuration = unsafe { Configuration::read(&core, handle) }?;
        let libcrypto = Libcrypto::of(core.get_params as *const c_void)?;
        Ok(Self {
            default: DefaultProvider::load(libcrypto)?,
            errors: Errors::new(handle, &core),
            configuration,
            costs: OnceLock::new(),
        })
    }
}

/// The reason why a provider offers nothing.
#[derive(Debug)]
enum LoadError {
    NoParameters,
    Configuration(UnknownValue),
    Libcrypto(Unavailable),
    DefaultProvider(default_provider::LoadError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoParameters => f.write_str("the core gives no parameters"),
            Self::Configuration(cause) => cause.fmt(f),
            Self::Libcrypto(cause) => cause.fmt(f),
            Self::DefaultProvider(cause) => cause.fmt(f),
        }
    }
}

impl Error for LoadError {}

impl From<UnknownValue> for LoadError {
    fn from(cause: UnknownValue) -> Self {
        Self::Configuration(cause)
    }
}

impl From<Unavailable> for LoadError {
    fn from(cause: Unavailable) -> Self {
        Self::Libcrypto(cause)
    }
}

impl From<default_provider::LoadError> for LoadError {
    fn from(cause: default_provider::LoadError) -> Self {
        Self::DefaultProvider(cause)
    }
}
