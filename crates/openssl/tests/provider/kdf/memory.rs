//! Where secrets are left, and what else contexts hold.

use std::ffi::c_void;

use super::{EXPAND_ONLY, EXTRACT_AND_EXPAND, EXTRACT_ONLY, Kdf, Setting, mode, octets, text};
use crate::common::{SLIPSTREAM, exclusive};

/// A stack of a thread, which is read when the thread has ended. Bytes.
const STACK: usize = 1 << 20;

/// One derivation, made on a stack of its own.
struct Work {
    kdf: Kdf,
    settings: Vec<Setting>,
    output: Vec<u8>,
}

// SAFETY: OpenSSL's contexts may be used by one thread after another.
unsafe impl Send for Work {}

#[test]
fn no_secret_is_left_on_the_stack() {
    let _turn = exclusive();
    let key: Vec<u8> = (0x40..0x70).collect();
    for digest in [c"SHA2-256", c"SHA2-384", c"SHA2-512"] {
        let length = match digest.to_bytes() {
            b"SHA2-256" => 32,
            b"SHA2-384" => 48,
            _ => 64,
        };
        let digest = text(c"digest", digest);
        let label = [octets(c"prefix", "tls13 "), octets(c"label", "derived")];
        let hkdf = |mode_number| {
            let mut settings = vec![digest.clone(), mode(mode_number), octets(c"key", &*key)];
            settings.extend_from_slice(&label);
            settings
        };
        let salted = octets(c"salt", [7_u8; 64][..length].to_vec());
        let mut extract = hkdf(EXTRACT_ONLY);
        extract.push(salted);
        let prf = vec![
            digest.clone(),
            octets(c"secret", &*key),
            octets(c"seed", "seed"),
        ];
        for (name, settings, length) in [
            (c"TLS13-KDF", hkdf(EXPAND_ONLY), length),
            (c"TLS13-KDF", extract, length),
            (c"HKDF", hkdf(EXTRACT_AND_EXPAND), 100),
            (c"HKDF", hkdf(EXTRACT_ONLY), length),
            (c"TLS1-PRF", prf, 100),
        ] {
            let work = Work {
                kdf: Kdf::new(name, SLIPSTREAM),
                settings,
                output: vec![0; length],
            };
            let (stack, output) = on_own_stack(work);
            let traces = [
                key[..16].to_vec(),
                key[..16].iter().map(|byte| byte ^ 0x36).collect(),
                key[..16].iter().map(|byte| byte ^ 0x5c).collect(),
                output[..16].to_vec(),
                output[16..32].to_vec(),
            ];
            for (number, trace) in traces.iter().enumerate() {
                let found = stack.windows(trace.len()).position(|bytes| bytes == trace);
                assert_eq!(found, None, "{name:?} {digest:?} trace {number}");
            }
        }
    }
}

/// What is on the stack afterwards, and the output.
fn on_own_stack(work: Work) -> (Vec<u8>, Vec<u8>) {
    let mut stack = vec![0_u64; STACK / 8];
    let mut work = Box::new(work);
    // SAFETY: the memory is as large as said, and lives until the thread has been joined; so does
    // the work, which nobody else uses meanwhile.
    unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        assert_eq!(libc::pthread_attr_init(&mut attributes), 0);
        let base = stack.as_mut_ptr().cast();
        assert_eq!(libc::pthread_attr_setstack(&mut attributes, base, STACK), 0);
        let mut thread = 0;
        let argument = (&raw mut *work).cast();
        let created = libc::pthread_create(&mut thread, &attributes, run, argument);
        assert_eq!(created, 0);
        assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
        libc::pthread_attr_destroy(&mut attributes);
    }
    assert!(stack.iter().any(|&word| word != 0), "it was the stack");
    let stack = stack.iter().flat_map(|word| word.to_ne_bytes()).collect();
    (stack, work.output)
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: the work that `on_own_stack` passes.
    let work = unsafe { &mut *work.cast::<Work>() };
    let params = super::params(&work.settings);
    let (output, length) = (work.output.as_mut_ptr(), work.output.len());
    // SAFETY: a context, room for as many bytes, and an array that ends.
    let derived = unsafe { super::EVP_KDF_derive(work.kdf.0, output, length, params.as_ptr()) };
    assert_eq!(derived, 1);
    std::ptr::null_mut()
}

#[test]
fn a_copy_goes_its_own_way() {
    let _turn = exclusive();
    let kdf = Kdf::new(c"HKDF", SLIPSTREAM);
    let settings = [text(c"digest", c"SHA2-384"), octets(c"key", "key")];
    kdf.set(&settings).expect("settings");
    let copy = kdf.duplicate().expect("a copy");
    kdf.set(&[octets(c"key", "another key")]).expect("a key");
    let (ours, copied) = (kdf.derive(None, 48), copy.derive(None, 48));
    assert_ne!(ours, copied);
    kdf.set(&[octets(c"key", "key")]).expect("a key");
    assert_eq!(kdf.derive(None, 48), copied);
    kdf.reset();
    assert!(kdf.derive(None, 48).is_err());
    assert_eq!(copy.derive(None, 48), copied);
}
