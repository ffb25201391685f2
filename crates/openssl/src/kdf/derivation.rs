//! HKDF (RFC 5869), TLS 1.3's derivations (RFC 8446, section 7.1) and TLS 1.2's pseudorandom
//! function (RFC 5246, section 5), with the parameters of a context.
//!
//! An HMAC takes two compressions for its key and two or more for its message. The states after the
//! key are kept: for one derivation, or for good if the key is not secret (see [`Known`]).

use std::sync::LazyLock;

use hmac::digest::Output;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::zeroize_stack;

use super::function::Function;
use super::settings::{Hash, Input, Mode, Settings};

/// The bytes of stack that are wiped after a derivation, which leaves keys, states and message
/// schedules there. A derivation takes up to 4,500. Much more must not be touched: a job of OpenSSL
/// has 32 KiB without a guard page, of which a handshake may have taken half.
const STACK: usize = 8 * 1024;

/// The prefix of labels (RFC 8446, section 7.1).
const PREFIX: &[u8] = b"tls13 ";
const DERIVED: &[u8] = b"derived";

/// Fills `output`. Returns false, with nothing written, if the default provider has to derive: a
/// parameter is missing, or too long.
pub(super) fn derive(function: Function, settings: &Settings, output: &mut [u8]) -> bool {
    let derived = derive_unwiped(function, settings, &KNOWN, output);
    zeroize_stack::<STACK>();
    derived.is_some()
}

/// Computes the values that depend on no secret. To be called when a provider is loaded, since the
/// first derivation may have a small stack.
pub(crate) fn prepare() {
    LazyLock::force(&KNOWN);
}

static KNOWN: LazyLock<AllKnown> = LazyLock::new(AllKnown::new);

/// The values that depend on no secret, for each hash function.
struct AllKnown {
    sha256: Known<Hmac<Sha256>>,
    sha384: Known<Hmac<Sha384>>,
    sha512: Known<Hmac<Sha512>>,
}

impl AllKnown {
    fn new() -> Self {
        Self {
            sha256: Known::new(Sha256::digest([])),
            sha384: Known::new(Sha384::digest([])),
            sha512: Known::new(Sha512::digest([])),
        }
    }
}

/// Values that depend on no secret: the first half of TLS 1.3's schedule without a pre-shared key.
struct Known<M: Prf> {
    hash_of_nothing: Output<M>,
    /// HMAC with the key that stands for a missing salt.
    without_salt: M,
    /// The early secret of a handshake without a pre-shared key.
    early_secret: Output<M>,
    /// HMAC with the key derived from it, which extracts the handshake secret.
    derived_from_early_secret: M,
}

/// HMAC with any hash function.
trait Prf: Mac + KeyInit + Clone {}

impl<M: Mac + KeyInit + Clone> Prf for M {}

impl<M: Prf> Known<M> {
    fn new(hash_of_nothing: Output<M>) -> Self {
        let without_salt = keyed::<M>(&[]);
        let early_secret = hmac(without_salt.clone(), &[&Output::<M>::default()]);
        let mut derived = Output::<M>::default();
        let label = Label {
            prefix: PREFIX,
            label: DERIVED,
            data: &hash_of_nothing,
        };
        let fits = label.expand(&keyed::<M>(&early_secret), &mut derived);
        assert!(fits.is_some(), "the label is short");
        Self {
            derived_from_early_secret: keyed(&derived),
            hash_of_nothing,
            without_salt,
            early_secret,
        }
    }
}

fn derive_unwiped(
    function: Function,
    settings: &Settings,
    known: &AllKnown,
    output: &mut [u8],
) -> Option<()> {
    match settings.hash()? {
        Hash::Sha256 => derive_with(function, settings, &known.sha256, output),
        Hash::Sha384 => derive_with(function, settings, &known.sha384, output),
        Hash::Sha512 => derive_with(function, settings, &known.sha512, output),
    }
}

/// Not inlined, so that its frame lies in the part of the stack that is wiped.
#[inline(never)]
fn derive_with<M: Prf>(
    function: Function,
    settings: &Settings,
    known: &Known<M>,
    output: &mut [u8],
) -> Option<()> {
    let get = |input| settings.get(input);
    let info = || [get(Input::Info).unwrap_or_default()];
    match (function, settings.mode()) {
        (Function::Tls1Prf, _) => tls1_prf(
            &keyed::<M>(get(Input::Key)?),
            get(Input::Seed).filter(|seed| !seed.is_empty())?,
            output,
        ),
        (Function::Hkdf, Mode::ExtractOnly) => {
            let secret = extract(known, get(Input::Salt), get(Input::Key)?);
            copy(&secret, output)
        }
        (Function::Hkdf, Mode::ExpandOnly) => {
            expand(&keyed::<M>(get(Input::Key)?), &info(), output)
        }
        (Function::Hkdf, Mode::ExtractAndExpand) => {
            let secret = extract(known, get(Input::Salt), get(Input::Key)?);
            expand(&keyed::<M>(&secret), &info(), output)
        }
        (Function::Tls13, Mode::ExtractOnly) => {
            let secret = tls13_extract(known, settings)?;
            copy(&secret, output)
        }
        (Function::Tls13, Mode::ExpandOnly) => {
            let label = Label {
                prefix: get(Input::Prefix)?,
                label: get(Input::Label)?,
                data: get(Input::Data).unwrap_or_default(),
            };
            label.expand(&keyed::<M>(get(Input::Key)?), output)
        }
        (Function::Tls13, Mode::ExtractAndExpand) => None,
    }
}

/// HKDF-Extract (RFC 5869, section 2.2).
fn extract<M: Prf>(known: &Known<M>, salt: Option<&[u8]>, key: &[u8]) -> Output<M> {
    let mac = match salt {
        Some(salt) => keyed(salt),
        None => known.without_salt.clone(),
    };
    hmac(mac, &[key])
}

/// One step of the key schedule (RFC 8446, section 7.1). The salt is the secret of the step before,
/// from which the salt for HKDF-Extract is derived. Without a key, the key is zeros of the hash's
/// length.
fn tls13_extract<M: Prf>(known: &Known<M>, settings: &Settings) -> Option<Output<M>> {
    let zeros = Output::<M>::default();
    let key = settings.get(Input::Key);
    let Some(before) = settings.get(Input::Salt) else {
        return Some(match key {
            Some(key) => hmac(known.without_salt.clone(), &[key]),
            None => known.early_secret.clone(),
        });
    };
    // Some versions of OpenSSL read a hash's length of it, whatever its length.
    if before.len() != zeros.len() {
        return None;
    }
    let label = Label {
        prefix: settings.get(Input::Prefix)?,
        label: settings.get(Input::Label)?,
        data: &known.hash_of_nothing,
    };
    // A branch on a secret: it shows if there is a pre-shared key, which the handshake shows, too.
    let early = bool::from(before.ct_eq(&known.early_secret));
    let mac = if early && label.prefix == PREFIX && label.label == DERIVED {
        known.derived_from_early_secret.clone()
    } else {
        let mut salt = Output::<M>::default();
        label.expand(&keyed::<M>(before), &mut salt)?;
        keyed(&salt)
    };
    Some(hmac(mac, &[key.unwrap_or(&zeros)]))
}

/// The structure HkdfLabel of RFC 8446, section 7.1.
struct Label<'a> {
    prefix: &'a [u8],
    label: &'a [u8],
    data: &'a [u8],
}

impl Label<'_> {
    fn expand<M: Prf>(&self, key: &M, output: &mut [u8]) -> Option<()> {
        let [high, low] = u16::try_from(output.len()).ok()?.to_be_bytes();
        let label_length = u8::try_from(self.prefix.len() + self.label.len()).ok()?;
        let data_length = u8::try_from(self.data.len()).ok()?;
        let head = [high, low, label_length];
        let info = [&head, self.prefix, self.label, &[data_length], self.data];
        expand(key, &info, output)
    }
}

/// HKDF-Expand (RFC 5869, section 2.3).
fn expand<M: Prf>(key: &M, info: &[&[u8]], output: &mut [u8]) -> Option<()> {
    let length = M::output_size();
    if output.is_empty() || output.len() > 255 * length {
        return None;
    }
    let mut previous = None::<Output<M>>;
    for (chunk, counter) in output.chunks_mut(length).zip(1..=255) {
        let mut mac = key.clone();
        if let Some(previous) = &previous {
            mac.update(previous);
        }
        info.iter().for_each(|part| mac.update(part));
        mac.update(&[counter]);
        let block = mac.finalize().into_bytes();
        chunk.copy_from_slice(&block[..chunk.len()]);
        previous = Some(block);
    }
    Some(())
}

/// `P_hash` (RFC 5246, section 5).
fn tls1_prf<M: Prf>(key: &M, seed: &[u8], output: &mut [u8]) -> Option<()> {
    if output.is_empty() {
        return None;
    }
    let mut chained = hmac(key.clone(), &[seed]);
    let mut chunks = output.chunks_mut(M::output_size()).peekable();
    while let Some(chunk) = chunks.next() {
        let block = hmac(key.clone(), &[&chained, seed]);
        chunk.copy_from_slice(&block[..chunk.len()]);
        if chunks.peek().is_some() {
            chained = hmac(key.clone(), &[&chained]);
        }
    }
    Some(())
}

fn keyed<M: Prf>(key: &[u8]) -> M {
    M::new_from_slice(key).expect("HMAC takes keys of any length")
}

fn hmac<M: Prf>(mut mac: M, parts: &[&[u8]]) -> Output<M> {
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes()
}

/// Copies `secret`; `None` if the lengths differ.
fn copy(secret: &[u8], output: &mut [u8]) -> Option<()> {
    (secret.len() == output.len()).then(|| output.copy_from_slice(secret))
}
