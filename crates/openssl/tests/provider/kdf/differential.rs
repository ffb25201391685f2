//! The same calls to both providers, good ones and bad ones: the same answers, errors included.

use std::ffi::CStr;

use super::{
    EXPAND_ONLY, EXTRACT_AND_EXPAND, EXTRACT_ONLY, Kdf, Setting, Value, mode, octets, text,
};
use crate::common::{DEFAULT, Outcome, SLIPSTREAM, exclusive};

const NAMES: [&CStr; 3] = [c"TLS13-KDF", c"HKDF", c"TLS1-PRF"];

/// Any of these: the first ones are computed by the provider itself.
const DIGESTS: [(&CStr, usize); 12] = [
    (c"SHA2-256", 32),
    (c"SHA2-384", 48),
    (c"SHA2-512", 64),
    (c"SHA256", 32),
    (c"sha-384", 48),
    (c"sha512", 64),
    (c"SHA1", 20),
    (c"SHA2-224", 28),
    (c"SHA2-512/256", 32),
    (c"SHA3-256", 32),
    (c"MD5-SHA1", 36),
    (c"no such digest", 32),
];

#[test]
fn random_calls_are_answered_alike() {
    let _turn = exclusive();
    let mut random = Random(1);
    for round in 0..6000 {
        let name = NAMES[round % NAMES.len()];
        let mut calls = Calls::new(name, &mut random);
        let mut pair = Pair::new(name);
        let mut log = Vec::new();
        for _ in 0..=random.below(6) {
            let alike = calls.next(&mut random, &mut pair, &mut log);
            assert!(alike, "{name:?}, round {round}: {log:#?}");
            if calls.over {
                break;
            }
        }
    }
}

#[test]
fn what_libssl_asks_is_answered_alike_for_any_input() {
    let _turn = exclusive();
    let mut random = Random(2);
    for (digest, length) in &DIGESTS[..3] {
        for _ in 0..50 {
            let digest = text(c"digest", digest);
            let tls13 = |mode_number| {
                vec![
                    mode(mode_number),
                    digest.clone(),
                    octets(c"prefix", "tls13 "),
                    octets(c"label", "derived"),
                ]
            };
            let secret = random.bytes(*length);
            let mut expand = tls13(EXPAND_ONLY);
            expand.push(octets(c"key", &*secret));
            expand.push(octets(c"data", random.bytes(*length)));
            let early = derive(c"TLS13-KDF", &tls13(EXTRACT_ONLY), *length);
            let mut handshake = tls13(EXTRACT_ONLY);
            handshake.push(octets(c"salt", early));
            handshake.push(octets(c"key", random.bytes(32)));
            let mut other = handshake.clone();
            other[3] = octets(c"label", "another label");
            let mut master = tls13(EXTRACT_ONLY);
            master.push(octets(c"salt", secret));
            for settings in [expand, handshake, other, master] {
                derive(c"TLS13-KDF", &settings, *length);
            }
            let prf = [
                digest.clone(),
                octets(c"secret", random.bytes(48)),
                octets(c"seed", "key expansion"),
                octets(c"seed", random.bytes(32)),
                octets(c"seed", random.bytes(32)),
                Setting {
                    name: c"seed",
                    value: Value::Null,
                },
                Setting {
                    name: c"seed",
                    value: Value::Null,
                },
            ];
            derive(c"TLS1-PRF", &prf, 1 + random.below(300));
        }
    }
}

/// The answer of both, which must be a derivation.
fn derive(name: &CStr, settings: &[Setting], length: usize) -> Vec<u8> {
    let [ours, default] =
        [SLIPSTREAM, DEFAULT].map(|query| Kdf::new(name, query).derive(Some(settings), length));
    assert_eq!(ours, default, "{name:?} {settings:?}");
    ours.expect("a derivation")
}

#[test]
fn what_is_missing_or_too_long_is_refused_alike() {
    let _turn = exclusive();
    let sha384 = || text(c"digest", c"SHA2-384");
    let key = |name| octets(name, [1; 48]);
    let tls13 = |extra: &[Setting]| {
        let mut settings = vec![sha384(), octets(c"prefix", "tls13 ")];
        settings.extend_from_slice(extra);
        settings
    };
    let expand = || mode(EXPAND_ONLY);
    let label = || octets(c"label", "key");
    let long = || octets(c"label", [b'x'; 250]);
    let refused: [(&CStr, Vec<Setting>, usize); 17] = [
        (c"HKDF", vec![key(c"key")], 32),
        (c"HKDF", vec![sha384()], 32),
        (c"HKDF", vec![sha384(), key(c"key")], 0),
        (c"HKDF", vec![sha384(), key(c"key")], 255 * 48 + 1),
        (c"HKDF", vec![sha384(), key(c"key"), mode(EXTRACT_ONLY)], 32),
        (c"HKDF", vec![sha384(), key(c"key"), mode(3)], 32),
        (c"HKDF", vec![text(c"digest", c"SHA9"), key(c"key")], 32),
        (c"TLS13-KDF", tls13(&[expand(), label()]), 32),
        (c"TLS13-KDF", tls13(&[key(c"key"), label()]), 32),
        (
            c"TLS13-KDF",
            tls13(&[mode(EXTRACT_AND_EXPAND), key(c"key"), label()]),
            32,
        ),
        (c"TLS13-KDF", vec![expand(), key(c"key"), label()], 32),
        (c"TLS13-KDF", tls13(&[expand(), key(c"key"), long()]), 32),
        (
            c"TLS13-KDF",
            tls13(&[expand(), key(c"key"), label()]),
            255 * 48 + 1,
        ),
        (
            c"TLS13-KDF",
            tls13(&[mode(EXTRACT_ONLY), key(c"key"), label()]),
            32,
        ),
        (c"TLS1-PRF", vec![sha384(), octets(c"seed", "seed")], 32),
        (c"TLS1-PRF", vec![sha384(), key(c"secret")], 32),
        (
            c"TLS1-PRF",
            vec![sha384(), key(c"secret"), octets(c"seed", "seed")],
            0,
        ),
    ];
    for (name, settings, length) in refused {
        let outcomes = [SLIPSTREAM, DEFAULT]
            .map(|query| Kdf::new(name, query).derive(Some(&settings), length));
        assert_eq!(outcomes[0], outcomes[1], "{name:?} {settings:?}");
        assert!(outcomes[0].is_err(), "{name:?} {settings:?}");
    }
}

#[test]
fn the_longest_output_is_given() {
    let _turn = exclusive();
    let sha256 = text(c"digest", c"SHA2-256");
    let settings = [sha256, octets(c"key", "key"), octets(c"info", "info")];
    derive(c"HKDF", &settings, 255 * 32);
}

#[test]
fn parameters_are_listed_alike() {
    let _turn = exclusive();
    for name in NAMES {
        let [ours, default] = [SLIPSTREAM, DEFAULT].map(|query| Kdf::new(name, query).lists());
        assert_eq!(ours, default, "{name:?}");
        assert!(!ours[0].is_empty() && !ours[1].is_empty());
    }
}

/// Calls to one context that no version of OpenSSL crashes at: 3.0 forgets an input that it is
/// given again without its length, and reads a hash's length of any salt.
struct Calls {
    name: &'static CStr,
    digest: (&'static CStr, usize),
    info_set: bool,
    /// Nothing may follow.
    over: bool,
}

impl Calls {
    fn new(name: &'static CStr, random: &mut Random) -> Self {
        let most = if random.below(4) == 0 { 12 } else { 6 };
        Self {
            name,
            digest: DIGESTS[random.below(most)],
            info_set: false,
            over: false,
        }
    }

    /// Makes one call. False if the answers differ.
    fn next(&mut self, random: &mut Random, pair: &mut Pair, log: &mut Vec<String>) -> bool {
        match random.below(10) {
            0 => {
                log.push("reset".into());
                pair.each(Kdf::reset);
                self.info_set = false;
                true
            }
            1 => {
                log.push("size".into());
                pair.alike(Kdf::size, log)
            }
            2 => {
                log.push("duplicate".into());
                pair.duplicate();
                true
            }
            3 | 4 => {
                let settings = self.settings(random);
                log.push(format!("set {settings:?}"));
                self.outcome(pair, log, |kdf| kdf.set(&settings))
            }
            choice => {
                let settings = (choice > 5).then(|| self.settings(random));
                let length = self.length(random);
                log.push(format!("derive {length} {settings:?}"));
                self.outcome(pair, log, |kdf| kdf.derive(settings.as_deref(), length))
            }
        }
    }

    fn outcome(
        &mut self,
        pair: &Pair,
        log: &mut Vec<String>,
        function: impl Fn(&Kdf) -> Outcome,
    ) -> bool {
        let failed = |kdf: &Kdf| {
            let outcome = function(kdf);
            (outcome.is_err(), outcome)
        };
        let [ours, default] = pair.both(failed);
        // After an error OpenSSL 3.0 has a prefix or label that it believes to be longer.
        self.over |= default.0 && self.name == NAMES[0];
        log.push(format!("{ours:?} {default:?}"));
        ours == default
    }

    fn length(&self, random: &mut Random) -> usize {
        match random.below(8) {
            0 => 0,
            1 => 1 + random.below(300),
            2 => 255 * self.digest.1 + random.below(2),
            3 | 4 => 12,
            _ => self.digest.1,
        }
    }

    fn settings(&mut self, random: &mut Random) -> Vec<Setting> {
        let mut settings = Vec::new();
        if random.below(8) > 0 {
            settings.push(text(c"digest", self.digest.0));
        }
        if random.below(40) == 0 {
            settings.push(text(c"properties", c"provider=default"));
        }
        if random.below(40) == 0 {
            settings.push(octets(c"unheard of", "value"));
        }
        if self.name == NAMES[2] {
            self.prf(random, &mut settings);
        } else {
            self.hkdf(random, &mut settings);
        }
        for _ in 0..random.below(3) {
            let (a, b) = (
                random.below(settings.len() + 1),
                random.below(settings.len() + 1),
            );
            if a < settings.len() && b < settings.len() {
                settings.swap(a, b);
            }
        }
        settings
    }

    fn prf(&self, random: &mut Random, settings: &mut Vec<Setting>) {
        if random.below(8) > 0 {
            settings.push(self.input(c"secret", random));
        }
        for _ in 0..random.below(6) {
            settings.push(match random.below(6) {
                0 => Setting {
                    name: c"seed",
                    value: Value::Null,
                },
                _ => self.input(c"seed", random),
            });
        }
    }

    fn hkdf(&mut self, random: &mut Random, settings: &mut Vec<Setting>) {
        let tls13 = self.name == NAMES[0];
        match random.below(10) {
            0 => {}
            1 => settings.push(mode(random.below(5) as i32 - 1)),
            2 => settings.push(text(c"mode", c"EXPAND_ONLY")),
            3 => settings.push(text(c"mode", c"Extract_Only")),
            4 => settings.push(mode(EXTRACT_AND_EXPAND)),
            number => settings.push(mode(1 + (number % 2) as i32)),
        }
        if random.below(8) > 0 {
            settings.push(self.input(c"key", random));
        }
        if random.below(2) == 0 {
            let salt = match (tls13, random.below(4)) {
                (true, 0) => random.bytes(64),
                (true, _) => random.bytes(self.digest.1),
                (false, 0) => vec![],
                (false, _) => {
                    let length = random.below(150);
                    random.bytes(length)
                }
            };
            settings.push(octets(c"salt", salt));
        }
        if tls13 {
            for (name, usual) in [(c"prefix", "tls13 "), (c"label", "derived")] {
                match random.below(16) {
                    0 => {}
                    1 => settings.push(self.input(name, random)),
                    _ => settings.push(octets(name, usual)),
                }
            }
            if random.below(2) == 0 {
                settings.push(octets(c"data", random.bytes(self.digest.1)));
            }
        } else if random.below(2) == 0 {
            for _ in 0..1 + random.below(6) / 4 {
                let least = usize::from(self.info_set);
                let length = least + random.below(100);
                settings.push(octets(c"info", random.bytes(length)));
                self.info_set = true;
            }
        }
    }

    /// Of a usual length, or of any, or of none, or not even octets.
    fn input(&self, name: &'static CStr, random: &mut Random) -> Setting {
        let value = match random.below(40) {
            0 => Value::Text(c"text"),
            1 => Value::Null,
            2 => Value::Octets(vec![]),
            3 => {
                let length = random.below(700);
                Value::Octets(random.bytes(length))
            }
            _ => Value::Octets(random.bytes(self.digest.1)),
        };
        Setting { name, value }
    }
}

/// Contexts of both providers that have had the same calls.
struct Pair {
    ours: Kdf,
    default: Kdf,
}

impl Pair {
    fn new(name: &CStr) -> Self {
        Self {
            ours: Kdf::new(name, SLIPSTREAM),
            default: Kdf::new(name, DEFAULT),
        }
    }

    fn both<T>(&self, function: impl Fn(&Kdf) -> T) -> [T; 2] {
        [function(&self.ours), function(&self.default)]
    }

    fn each(&self, function: impl Fn(&Kdf)) {
        self.both(function);
    }

    fn alike<T: PartialEq + std::fmt::Debug>(
        &self,
        function: impl Fn(&Kdf) -> T,
        log: &mut Vec<String>,
    ) -> bool {
        let [ours, default] = self.both(function);
        log.push(format!("{ours:?} {default:?}"));
        ours == default
    }

    /// Goes on with copies. OpenSSL 3.0 has none: its context goes on.
    fn duplicate(&mut self) {
        if let Some(copy) = self.ours.duplicate() {
            self.ours = copy;
        }
        if let Some(copy) = self.default.duplicate() {
            self.default = copy;
        }
    }
}

/// Numbers that are the same in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((number ^ (number >> 31)) % limit as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}
