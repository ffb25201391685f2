//! Generation of keys, by an accelerator or by the default provider.

use std::ffi::{CStr, c_int, c_void};

use slipstream_keys::{Group, KeyPair};
use slipstream_offload::{Kind, Operation, Route};

use super::key::Key;
use super::key_type::KeyType;
use super::material::Material;
use crate::default_provider::Family;
use crate::ffi::{Callback, Param, SELECT_KEYPAIR};
use crate::group::{Bytes, facts, from_name};
use crate::job;
use crate::loaded::{LoadedRef, Provider};
use crate::object::{self, DefaultObject, Object};
use crate::param::Lent;

/// A generation as OpenSSL holds it. The default provider does it from the beginning, except in a
/// job whose operations may be offloaded and while only the group has been set.
pub(super) struct Generation {
    loaded: LoadedRef,
    family: Family,
    selection: c_int,
    /// The group of a key that an accelerator may generate, if it has been set.
    group: Option<Group>,
    /// The default provider's context, in which the group has been set.
    default: Option<DefaultObject>,
}

impl Object for Generation {}

impl Generation {
    /// The default provider's context, which does everything from now on. `None` if it has no
    /// memory or refuses. The context is made with `params`.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn default(&mut self, params: *const Param) -> Option<*mut c_void> {
        if self.default.is_none() {
            let default = &self.loaded.default;
            let functions = &default.exchange(self.family)?.keymgmt;
            // SAFETY: the default provider's own context, and the caller's array.
            let context = unsafe {
                let context = (functions.gen_init)(default.context, self.selection, params);
                DefaultObject::own(context, functions.gen_cleanup)
            }?;
            if let Some(group) = self.group {
                let mut name = facts(group).names[0].to_bytes_with_nul().to_vec();
                let mut params = [Lent::text(c"group", &mut name), Lent::END];
                let params = Lent::as_mut_ptr(&mut params);
                // SAFETY: the context just made, and an array that ends with a null key.
                if unsafe { (functions.gen_set_params)(context.as_ptr(), params) } != 1 {
                    return None;
                }
            }
            self.default = Some(context);
        }
        self.default.as_ref().map(DefaultObject::as_ptr)
    }

    /// Generates a key by an accelerator; `None` if the default provider has to generate it.
    fn key(&self) -> Option<Key> {
        let group = self.group.filter(|_| self.default.is_none())?;
        let bytes = if self.selection & SELECT_KEYPAIR == 0 {
            Bytes::group(group)
        } else {
            Bytes::key_pair(group, self.offloaded(group)?)
        };
        Some(Key::new(Material::from_bytes(self.loaded, bytes)))
    }

    /// Gets a precomputed key pair, or one that is generated while the caller is paused. `None` if
    /// software has to generate it.
    fn offloaded(&self, group: Group) -> Option<KeyPair> {
        let route = job::admit(self.loaded, Kind::KeyPair(group))
            .map_err(job::refuse)
            .ok()?;
        let output = job::compute(self.loaded, route, Operation::KeyPair(group))?;
        let pair = KeyPair::from_bytes(group, output.as_slice())?;
        match route {
            Route::AtOnce => Some(pair),
            // Checked, since another process may have generated it.
            Route::Pause => Bytes::public_key(group, pair.public.as_slice()).map(|_| pair),
        }
    }

    /// The group in `params`, if they set nothing else and accelerators compute with it.
    ///
    /// # Safety
    /// `params` must be null or an array that ends with a null key.
    unsafe fn group_alone(&self, params: *const Param) -> Option<Group> {
        // SAFETY: the caller's promise: the entry after an entry with a key can be read.
        let param = unsafe {
            let param = params.as_ref().filter(|param| !param.key.is_null())?;
            (*params.add(1)).key.is_null().then_some(param)
        }?;
        // SAFETY: names are texts that end with NUL; the core's parameter.
        let name = unsafe {
            let name = CStr::from_ptr(param.key);
            (name == c"group").then(|| param.utf8())?
        }?;
        from_name(self.family, name.to_bytes())
    }
}

pub(super) unsafe extern "C" fn init<T: KeyType>(
    provider: *mut c_void,
    selection: c_int,
    params: *const Param,
) -> *mut c_void {
    // SAFETY: the core passes the context of this provider.
    let Some(loaded) = (unsafe { Provider::loaded(provider) }) else {
        return std::ptr::null_mut();
    };
    let mut generation = Generation {
        loaded,
        family: T::FAMILY,
        selection,
        group: None,
        default: None,
    };
    // SAFETY: an array of parameters can be read up to the entry without a key.
    let empty = unsafe { params.as_ref() }.is_none_or(|first| first.key.is_null());
    if empty && job::participates(loaded) {
        if T::FAMILY == Family::X25519 {
            generation.group = Some(Group::X25519);
        }
    // SAFETY: the core's array.
    } else if unsafe { generation.default(params) }.is_none() {
        return std::ptr::null_mut();
    }
    generation.into_raw()
}

pub(super) unsafe extern "C" fn set_params(generation: *mut c_void, params: *const Param) -> c_int {
    // SAFETY: the core passes one of our generations.
    let generation = unsafe { Generation::borrow_mut(generation) };
    if generation.default.is_none() {
        // SAFETY: the core's array.
        if let Some(group) = unsafe { generation.group_alone(params) } {
            generation.group = Some(group);
            return 1;
        }
    }
    // SAFETY: no array.
    let default = unsafe { generation.default(std::ptr::null()) };
    let functions = generation.loaded.default.exchange(generation.family);
    let (Some(default), Some(functions)) = (default, functions) else {
        return 0;
    };
    // SAFETY: a context of the default provider, and the core's array.
    unsafe { (functions.keymgmt.gen_set_params)(default, params) }
}

pub(super) unsafe extern "C" fn set_template(
    generation: *mut c_void,
    template: *mut c_void,
) -> c_int {
    // SAFETY: the core passes one of our generations and null or one of our keys.
    let (generation, template) =
        unsafe { (Generation::borrow_mut(generation), Key::borrow(template)) };
    let Some(template) = template else {
        return 0;
    };
    if generation.default.is_none()
        && let Some(known) = template.material().known()
    {
        generation.group = Some(known.group);
        return 1;
    }
    // SAFETY: no array.
    let default = unsafe { generation.default(std::ptr::null()) };
    let (Some(default), Some((functions, template))) = (default, template.as_default()) else {
        return 0;
    };
    let Some(set_template) = functions.keymgmt.gen_set_template else {
        return 0;
    };
    // SAFETY: a context and a key of the default provider.
    unsafe { set_template(default, template) }
}

pub(super) unsafe extern "C" fn generate(
    generation: *mut c_void,
    callback: Option<Callback>,
    argument: *mut c_void,
) -> *mut c_void {
    // SAFETY: the core passes one of our generations.
    let generation = unsafe { Generation::borrow_mut(generation) };
    if let Some(key) = generation.key() {
        return key.into_raw();
    }
    let (loaded, family) = (generation.loaded, generation.family);
    // SAFETY: no array.
    let default = unsafe { generation.default(std::ptr::null()) };
    let (Some(default), Some(functions)) = (default, loaded.default.exchange(family)) else {
        return std::ptr::null_mut();
    };
    let functions = &functions.keymgmt;
    // SAFETY: a context of the default provider, and the core's callback with its argument.
    let key = unsafe {
        let key = (functions.generate)(default, callback, argument);
        DefaultObject::own(key, functions.free)
    };
    object::into_raw(key.map(|key| Key::from_default(loaded, family, key)))
}

pub(super) unsafe extern "C" fn settable_params<T: KeyType>(
    _generation: *mut c_void,
    provider: *mut c_void,
) -> *const Param {
    // SAFETY: the core passes the context of this provider.
    let loaded = unsafe { Provider::loaded(provider) };
    let table = loaded.and_then(|loaded| {
        let functions = &loaded.default.exchange(T::FAMILY)?.keymgmt;
        // SAFETY: the default provider's own context; the table is the same for every generation.
        Some(unsafe {
            (functions.gen_settable_params)(std::ptr::null_mut(), loaded.default.context)
        })
    });
    table.unwrap_or(std::ptr::null())
}
