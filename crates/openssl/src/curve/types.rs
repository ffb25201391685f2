//! Parameters that can be imported and exported, for each selection. OpenSSL asks for them without
//! a context, so the default provider cannot be asked.

use std::ffi::{CStr, c_int, c_uint};

use super::key_type::KeyType;
use crate::default_provider::Family;
use crate::ffi::{
    INTEGER, OCTET_STRING, Param, SELECT_DOMAIN_PARAMETERS, SELECT_KEYPAIR,
    SELECT_OTHER_PARAMETERS, SELECT_PRIVATE_KEY, SELECT_PUBLIC_KEY, Table, UNSIGNED_INTEGER,
    UTF8_STRING,
};
use crate::held;
use crate::param::describe;

/// The parameters with which keys of `T` can be imported; null if nothing is selected.
pub(super) unsafe extern "C" fn imported<T: KeyType>(selection: c_int) -> *const Param {
    types::<T>(selection).map_or(std::ptr::null(), <[Param]>::as_ptr)
}

/// The parameters that can be exported: all but the handle of a held key, which stands first.
pub(super) unsafe extern "C" fn exported<T: KeyType>(selection: c_int) -> *const Param {
    let has_handle = T::FAMILY == Family::Ec && selection & SELECT_PRIVATE_KEY != 0;
    types::<T>(selection).map_or(std::ptr::null(), |types| {
        types[usize::from(has_handle)..].as_ptr()
    })
}

fn types<T: KeyType>(selection: c_int) -> Option<&'static [Param]> {
    match T::FAMILY {
        Family::X25519 => (selection & SELECT_KEYPAIR != 0).then_some(&X25519.0),
        Family::Ec => match index(selection) {
            0 => None,
            index => Some(&EC[index].0),
        },
    }
}

static X25519: Table<Param, 3> = Table([
    describe(c"pub", OCTET_STRING),
    describe(c"priv", OCTET_STRING),
    Param::END,
]);

/// The parts of a key, in the order of the bits of an [`index`].
const PARTS: [c_int; 4] = [
    SELECT_PRIVATE_KEY,
    SELECT_PUBLIC_KEY,
    SELECT_DOMAIN_PARAMETERS,
    SELECT_OTHER_PARAMETERS,
];

/// Parameters of keys on curves, each with the index of its part in [`PARTS`].
const EC_PARAMETERS: [(usize, &CStr, c_uint); 17] = [
    (0, held::PARAMETER, UNSIGNED_INTEGER),
    (0, c"priv", UNSIGNED_INTEGER),
    (1, c"pub", OCTET_STRING),
    (2, c"group", UTF8_STRING),
    (2, c"encoding", UTF8_STRING),
    (2, c"point-format", UTF8_STRING),
    (2, c"field-type", UTF8_STRING),
    (2, c"p", UNSIGNED_INTEGER),
    (2, c"a", UNSIGNED_INTEGER),
    (2, c"b", UNSIGNED_INTEGER),
    (2, c"generator", OCTET_STRING),
    (2, c"order", UNSIGNED_INTEGER),
    (2, c"cofactor", UNSIGNED_INTEGER),
    (2, c"seed", OCTET_STRING),
    (2, c"decoded-from-explicit", INTEGER),
    (3, c"use-cofactor-flag", INTEGER),
    (3, c"include-public", INTEGER),
];

/// One table for each selection. Each has room for all parameters and the end.
static EC: [Table<Param, { EC_PARAMETERS.len() + 1 }>; 1 << PARTS.len()] = {
    let mut tables =
        [const { Table([const { Param::END }; EC_PARAMETERS.len() + 1]) }; 1 << PARTS.len()];
    let mut index = 0;
    while index < tables.len() {
        let (mut place, mut next) = (0, 0);
        while place < EC_PARAMETERS.len() {
            let (part, name, data_type) = EC_PARAMETERS[place];
            if index & 1 << part != 0 {
                tables[index].0[next] = describe(name, data_type);
                next += 1;
            }
            place += 1;
        }
        index += 1;
    }
    tables
};

fn index(selection: c_int) -> usize {
    (0..PARTS.len())
        .filter(|&part| selection & PARTS[part] != 0)
        .map(|part| 1 << part)
        .sum()
}
