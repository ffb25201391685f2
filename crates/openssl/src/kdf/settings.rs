//! The parameters that have been set in a context, copied to one buffer that is wiped.

use std::ffi::{CStr, c_int};

use zeroize::optimization_barrier;

use super::function::Function;
use crate::digest::Digest;
use crate::ffi::{INTEGER, OCTET_STRING, Param, UTF8_STRING};

/// The room for all inputs of one context in bytes. It is more than TLS needs.
const CAPACITY: usize = 512;

/// The most seeds that one call may set, as in OpenSSL 4.0. TLS sets three or five.
const SEEDS: usize = 6;

/// The hash functions with which keys are derived here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

impl Hash {
    fn from_name(name: &[u8]) -> Option<Self> {
        match Digest::from_name(name)? {
            Digest::Sha256 => Some(Self::Sha256),
            Digest::Sha384 => Some(Self::Sha384),
            Digest::Sha512 => Some(Self::Sha512),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static CStr {
        match self {
            Self::Sha256 => c"SHA2-256",
            Self::Sha384 => c"SHA2-384",
            Self::Sha512 => c"SHA2-512",
        }
    }

    /// The length of a hash in bytes.
    pub(super) fn length(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// `EVP_KDF_HKDF_MODE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    ExtractAndExpand = 0,
    ExtractOnly = 1,
    ExpandOnly = 2,
}

/// The parameters that hold bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The key of HKDF, or the secret of TLS 1.2's function.
    Key,
    Salt,
    Info,
    Prefix,
    Label,
    Data,
    /// The concatenated seeds of TLS 1.2's function.
    Seed,
}

impl Input {
    const ALL: [Self; 7] = [
        Self::Key,
        Self::Salt,
        Self::Info,
        Self::Prefix,
        Self::Label,
        Self::Data,
        Self::Seed,
    ];

    /// The name of the parameter of `function` (`OSSL_KDF_PARAM_*`).
    fn name(self, function: Function) -> &'static CStr {
        match self {
            Self::Key if function == Function::Tls1Prf => c"secret",
            Self::Key => c"key",
            Self::Salt => c"salt",
            Self::Info => c"info",
            Self::Prefix => c"prefix",
            Self::Label => c"label",
            Self::Data => c"data",
            Self::Seed => c"seed",
        }
    }

    fn from_name(function: Function, name: &[u8]) -> Option<Self> {
        match (function, name) {
            (Function::Tls13 | Function::Hkdf, b"key") => Some(Self::Key),
            (Function::Tls13 | Function::Hkdf, b"salt") => Some(Self::Salt),
            (Function::Hkdf, b"info") => Some(Self::Info),
            (Function::Tls13, b"prefix") => Some(Self::Prefix),
            (Function::Tls13, b"label") => Some(Self::Label),
            (Function::Tls13, b"data") => Some(Self::Data),
            (Function::Tls1Prf, b"secret") => Some(Self::Key),
            (Function::Tls1Prf, b"seed") => Some(Self::Seed),
            _ => None,
        }
    }
}

/// The parameters that have been set so far.
pub(super) struct Settings {
    hash: Option<Hash>,
    mode: Option<Mode>,
    /// The begin and the end of each input in `bytes`.
    inputs: [Option<(u16, u16)>; Input::ALL.len()],
    used: usize,
    bytes: [u8; CAPACITY],
}

impl Settings {
    pub(super) const fn new() -> Self {
        Self {
            hash: None,
            mode: None,
            inputs: [None; Input::ALL.len()],
            used: 0,
            bytes: [0; CAPACITY],
        }
    }

    pub(super) fn hash(&self) -> Option<Hash> {
        self.hash
    }

    /// The mode; OpenSSL's default is to extract and expand.
    pub(super) fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::ExtractAndExpand)
    }

    pub(super) fn get(&self, input: Input) -> Option<&[u8]> {
        let (start, end) = self.inputs[input as usize]?;
        Some(&self.bytes[usize::from(start)..usize::from(end)])
    }

    /// Takes over `params`. Returns false, with nothing changed, if the default provider has to
    /// take them: it refuses them, this provider does not have what they ask for, or versions of
    /// OpenSSL differ in them.
    ///
    /// # Safety
    /// `params` must be an array that ends with a null key and is not written meanwhile.
    pub(super) unsafe fn set(&mut self, function: Function, params: *const Param) -> bool {
        // SAFETY: the caller's promise.
        let Some(change) = (unsafe { Change::parse(function, params) }) else {
            return false;
        };
        if self.is_empty() {
            let set = self.fill(function, None, &change).is_some();
            if !set {
                self.clear();
            }
            return set;
        }
        let mut next = Box::new(Self::new());
        let set = next.fill(function, Some(self), &change).is_some();
        if set {
            std::mem::swap(self, &mut next);
        }
        set
    }

    /// Wipes everything.
    pub(super) fn clear(&mut self) {
        self.bytes[..self.used].fill(0);
        optimization_barrier(&self.bytes);
        self.hash = None;
        self.mode = None;
        self.inputs = [None; Input::ALL.len()];
        self.used = 0;
    }

    /// Becomes a copy of `other`.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.clear();
        self.hash = other.hash;
        self.mode = other.mode;
        self.inputs = other.inputs;
        self.used = other.used;
        self.bytes[..self.used].copy_from_slice(&other.bytes[..self.used]);
    }

    /// Calls `read` with an array of all parameters that have been set, if there are any.
    pub(super) fn as_params<T>(
        &self,
        function: Function,
        read: impl FnOnce(*const Param) -> T,
    ) -> Option<T> {
        let mut mode = self.mode() as c_int;
        let mut params = [const { Param::END }; 2 + Input::ALL.len() + 1];
        let mut room = params.iter_mut();
        let mut add = |key: &CStr, data_type, data: *const u8, data_size| {
            if let Some(param) = room.next() {
                *param = Param {
                    key: key.as_ptr(),
                    data_type,
                    data: data.cast_mut().cast(),
                    data_size,
                    return_size: 0,
                };
            }
        };
        if let Some(hash) = self.hash {
            let name = hash.name();
            add(
                c"digest",
                UTF8_STRING,
                name.as_ptr().cast(),
                name.count_bytes(),
            );
        }
        if self.mode.is_some() {
            let mode = (&raw mut mode).cast();
            add(c"mode", INTEGER, mode, size_of::<c_int>());
        }
        for input in Input::ALL {
            if let Some(bytes) = self.get(input) {
                add(
                    input.name(function),
                    OCTET_STRING,
                    bytes.as_ptr(),
                    bytes.len(),
                );
            }
        }
        (!self.is_empty()).then(|| read(params.as_ptr()))
    }

    fn is_empty(&self) -> bool {
        self.hash.is_none() && self.mode.is_none() && self.inputs == [None; Input::ALL.len()]
    }

    /// Becomes `earlier` with `change`. `None` if the default provider has to take the change.
    fn fill(&mut self, function: Function, earlier: Option<&Self>, change: &Change) -> Option<()> {
        let before = |input| earlier.and_then(|earlier| earlier.get(input));
        self.hash = change.hash.or(earlier.and_then(|earlier| earlier.hash));
        self.mode = change.mode.or(earlier.and_then(|earlier| earlier.mode));
        if function == Function::Tls13 {
            if self.mode() == Mode::ExtractAndExpand {
                return None;
            }
            // OpenSSL 3.0 drops the data then, OpenSSL 4.0 keeps it.
            if change.get(Input::Data).is_none() && before(Input::Data).is_some() {
                return None;
            }
        }
        for input in Input::ALL {
            if let Some(bytes) = change.get(input).or_else(|| before(input)) {
                self.put(input, &[bytes])?;
            }
        }
        if change.seed_count > 0 {
            self.put(Input::Seed, &change.seeds[..change.seed_count])?;
        }
        Some(())
    }

    /// Appends `parts` to `input`, which must be new or the input that was put last.
    fn put(&mut self, input: Input, parts: &[&[u8]]) -> Option<()> {
        let start = match self.inputs[input as usize] {
            Some((start, _)) => usize::from(start),
            None => self.used,
        };
        for part in parts {
            let room = self.bytes.get_mut(self.used..self.used + part.len())?;
            room.copy_from_slice(part);
            self.used += part.len();
        }
        // At most CAPACITY.
        self.inputs[input as usize] = Some((start as u16, self.used as u16));
        Some(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The parameters that one call sets. The bytes belong to the caller.
#[derive(Default)]
struct Change<'a> {
    hash: Option<Hash>,
    mode: Option<Mode>,
    inputs: [Option<&'a [u8]>; Input::ALL.len()],
    seeds: [&'a [u8]; SEEDS],
    seed_count: usize,
}

impl<'a> Change<'a> {
    /// Reads `params`. `None` if the default provider has to take them.
    ///
    /// # Safety
    /// As for [`Settings::set`], for as long as the result is used.
    unsafe fn parse(function: Function, params: *const Param) -> Option<Self> {
        let mut change = Self::default();
        // SAFETY: the caller's promise.
        for param in unsafe { entries(params) } {
            // SAFETY: names are texts that end with NUL.
            let name = unsafe { CStr::from_ptr(param.key) }.to_bytes();
            // SAFETY: the caller's promise.
            unsafe { change.add(function, name, param) }?;
        }
        Some(change)
    }

    /// # Safety
    /// As for [`Change::parse`].
    unsafe fn add(&mut self, function: Function, name: &[u8], param: &'a Param) -> Option<()> {
        // SAFETY: the caller's promise.
        let new = unsafe {
            match name {
                b"digest" => self.hash.replace(hash(param)?).is_none(),
                b"mode" if function != Function::Tls1Prf => {
                    self.mode.replace(mode(param)?).is_none()
                }
                _ => match Input::from_name(function, name)? {
                    Input::Seed => self.add_seed(param).is_some(),
                    input => {
                        let bytes = octets(input, param)?;
                        self.inputs[input as usize].replace(bytes).is_none()
                    }
                },
            }
        };
        // If a parameter is set twice, it depends on the version of OpenSSL which one counts.
        new.then_some(())
    }

    /// # Safety
    /// As for [`Change::parse`].
    unsafe fn add_seed(&mut self, param: &'a Param) -> Option<()> {
        // SAFETY: the caller's promise.
        *self.seeds.get_mut(self.seed_count)? = unsafe { octets(Input::Seed, param) }?;
        self.seed_count += 1;
        Some(())
    }

    fn get(&self, input: Input) -> Option<&'a [u8]> {
        self.inputs[input as usize]
    }
}

/// # Safety
/// `params` must be an array that ends with a null key and is not written meanwhile.
unsafe fn entries<'a>(params: *const Param) -> impl Iterator<Item = &'a Param> {
    // SAFETY: the caller's promise: every entry up to the one with a null key can be read.
    let entry = move |index| unsafe { &*params.add(index) };
    (0..).map(entry).take_while(|param| !param.key.is_null())
}

/// # Safety
/// The parameter must come from a caller who gave it to be read.
unsafe fn hash(param: &Param) -> Option<Hash> {
    if param.data_type != UTF8_STRING || param.data.is_null() {
        return None;
    }
    // SAFETY: texts end with NUL; their size does not matter. OpenSSL itself relies on that.
    Hash::from_name(unsafe { CStr::from_ptr(param.data.cast()) }.to_bytes())
}

/// # Safety
/// The parameter must come from a caller who gave it to be read.
unsafe fn mode(param: &Param) -> Option<Mode> {
    if param.data_type != INTEGER || param.data_size != size_of::<c_int>() || param.data.is_null() {
        return None;
    }
    // SAFETY: the data has the size of a number, of any alignment.
    match unsafe { param.data.cast::<c_int>().read_unaligned() } {
        0 => Some(Mode::ExtractAndExpand),
        1 => Some(Mode::ExtractOnly),
        2 => Some(Mode::ExpandOnly),
        _ => None,
    }
}

/// # Safety
/// The parameter must come from a caller who gave it to be read, for as long as the result is used.
unsafe fn octets(input: Input, param: &Param) -> Option<&[u8]> {
    if param.data_type != OCTET_STRING {
        return None;
    }
    if param.data.is_null() || param.data_size == 0 {
        return match input {
            Input::Info | Input::Seed => Some(&[]),
            Input::Salt => None,
            _ => (!param.data.is_null()).then_some(&[]),
        };
    }
    // SAFETY: a parameter with data has `data_size` bytes of it.
    Some(unsafe { std::slice::from_raw_parts(param.data.cast::<u8>(), param.data_size) })
}
