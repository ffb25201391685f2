//! Key exchange with OpenSSL as the client, and with shares that are none.

use openssl::bn::BigNumContext;
use openssl::derive::Deriver;
use openssl::ec::{EcGroup, EcKey, EcPoint, PointConversionForm};
use openssl::nid::Nid;
use openssl::pkey::{Id, PKey, Private, Public};
use rustls::Error;
use rustls::crypto::SupportedKxGroup;
use slipstream_keys::ec::Curve;
use slipstream_offload::{Kind, Reason};

use super::super::exchange::{INVALID_KEY_SHARE, P256, P384, X25519};
use super::super::hybrid::X25519_ML_KEM_768;
use super::{SOFTWARE, counters, install_lanes, install_lanes_for_one, on_fiber, together};

/// The single curves.
static GROUPS: [&'static dyn SupportedKxGroup; 3] = [&X25519, &P256, &P384];

/// The exchanges in [`GROUPS`].
const KINDS: [Kind; 3] = [
    Kind::X25519,
    Kind::Ecdh(Curve::P256),
    Kind::Ecdh(Curve::P384),
];

/// `None` for X25519.
fn curve(group: &dyn SupportedKxGroup) -> Option<EcGroup> {
    let name = match group.name() {
        rustls::NamedGroup::secp256r1 => Nid::X9_62_PRIME256V1,
        rustls::NamedGroup::secp384r1 => Nid::SECP384R1,
        _ => return None,
    };
    Some(EcGroup::from_curve_name(name).expect("a curve"))
}

/// OpenSSL's half.
struct Client {
    key: PKey<Private>,
    curve: Option<EcGroup>,
}

impl Client {
    fn new(group: &dyn SupportedKxGroup) -> Self {
        let curve = curve(group);
        let key = match &curve {
            None => PKey::generate_x25519(),
            Some(curve) => EcKey::generate(curve).and_then(PKey::from_ec_key),
        };
        Self {
            key: key.expect("a key"),
            curve,
        }
    }

    fn share(&self) -> Vec<u8> {
        let Some(curve) = &self.curve else {
            return self.key.raw_public_key().expect("a key");
        };
        let mut context = BigNumContext::new().expect("memory");
        let key = self.key.ec_key().expect("a key on a curve");
        let form = PointConversionForm::UNCOMPRESSED;
        key.public_key()
            .to_bytes(curve, form, &mut context)
            .expect("a point")
    }

    fn secret(&self, share: &[u8]) -> Vec<u8> {
        let peer: PKey<Public> = match &self.curve {
            None => PKey::public_key_from_raw_bytes(share, Id::X25519).expect("a key"),
            Some(curve) => {
                let mut context = BigNumContext::new().expect("memory");
                let point = EcPoint::from_bytes(curve, share, &mut context).expect("a point");
                let key = EcKey::from_public_key(curve, &point).expect("a key");
                PKey::from_ec_key(key).expect("a key")
            }
        };
        let mut deriver = Deriver::new(&self.key).expect("memory");
        deriver.set_peer(&peer).expect("a key of the same group");
        deriver.derive_to_vec().expect("a secret")
    }
}

/// As in TLS 1.3, and as in TLS 1.2.
fn agrees(group: &'static dyn SupportedKxGroup) {
    let client = Client::new(group);
    let completed = group.start_and_complete(&client.share()).expect("a secret");
    assert_eq!(completed.group, group.name());
    assert_eq!(
        completed.secret.secret_bytes(),
        client.secret(&completed.pub_key),
        "{group:?}"
    );

    let client = Client::new(group);
    let started = group.start().expect("a key pair");
    assert_eq!(started.group(), group.name());
    let share = started.pub_key().to_vec();
    let secret = started.complete(&client.share()).expect("a secret");
    assert_eq!(secret.secret_bytes(), client.secret(&share), "{group:?}");
}

pub(super) fn every_group_agrees_on_fibers() {
    let job =
        |group: &'static dyn SupportedKxGroup| Box::new(move || agrees(group)) as Box<dyn FnOnce()>;
    together(GROUPS.iter().cycle().take(18).copied().map(job).collect());
}

#[test]
fn without_fibers() {
    GROUPS.into_iter().for_each(agrees);
}

#[test]
fn on_fibers_without_an_instance() {
    every_group_agrees_on_fibers();
}

#[test]
fn in_lanes() {
    install_lanes();
    every_group_agrees_on_fibers();
    let counters = counters();
    assert_eq!(counters.lane_operations[Kind::X25519.index()], 12);
    assert_eq!(counters.lane_operations.iter().sum::<u64>(), 36);
    assert_eq!(counters.precomputed(), 36);
    assert_eq!(counters.software.iter().sum::<u64>(), 0);
}

#[test]
fn ephemeral_keys_differ() {
    install_lanes();
    for group in GROUPS {
        let share = move || group.start().expect("a key pair").pub_key().to_vec();
        assert_ne!(on_fiber(share), on_fiber(share), "{group:?}");
    }
}

/// Shares that RFC 8446 has refused: of other lengths, of small order, not on the curve, not
/// uncompressed.
fn wrong_shares(group: &dyn SupportedKxGroup) -> Vec<Vec<u8>> {
    let good = Client::new(group).share();
    let mut wrong = vec![
        Vec::new(),
        good[..good.len() - 1].to_vec(),
        [&good[..], &[0]].concat(),
        vec![0; good.len()],
        vec![0; 70_000],
    ];
    match curve(group) {
        None => {
            let mut one = vec![0; good.len()];
            one[0] = 1;
            wrong.push(one);
        }
        Some(curve) => {
            let mut off_curve = good.clone();
            off_curve[40] ^= 1;
            let mut hybrid_form = good.clone();
            hybrid_form[0] = 6 | (good[good.len() - 1] & 1);
            let mut context = BigNumContext::new().expect("memory");
            let point = EcPoint::from_bytes(&curve, &good, &mut context).expect("a point");
            let form = PointConversionForm::COMPRESSED;
            let compressed = point.to_bytes(&curve, form, &mut context).expect("a point");
            wrong.extend([off_curve, hybrid_form, compressed, vec![0]]);
        }
    }
    wrong
}

fn refuses(group: &'static dyn SupportedKxGroup) {
    for share in wrong_shares(group) {
        let completed = group.start_and_complete(&share).map(|_| ());
        assert_eq!(completed, Err(INVALID_KEY_SHARE), "{group:?} {share:?}");
        let started = group.start().expect("a key pair");
        let completed = started.complete(&share).map(|_| ());
        assert_eq!(completed, Err(INVALID_KEY_SHARE), "{group:?} {share:?}");
    }
}

#[test]
fn wrong_shares_are_refused() {
    for group in GROUPS {
        refuses(group);
        on_fiber(move || refuses(group));
    }
    install_lanes();
    for group in GROUPS {
        on_fiber(move || refuses(group));
    }
    assert!(counters().submitted.iter().sum::<u64>() > 0);
}

fn hybrid_refuses_and_agrees() {
    let group = &X25519_ML_KEM_768;
    let client = group.start().expect("a key pair");
    let good = client.pub_key().to_vec();
    let answer = |share: &[u8]| -> Result<_, Error> { group.start_and_complete(share) };
    let with = |change: fn(&mut Vec<u8>)| {
        let mut share = good.clone();
        change(&mut share);
        answer(&share).map(|_| ())
    };
    let refused = Err(INVALID_KEY_SHARE);
    assert_eq!(with(|share| share.truncate(0)), refused);
    assert_eq!(with(|share| share.truncate(1184)), refused);
    assert_eq!(with(|share| share.truncate(1215)), refused);
    assert_eq!(with(|share| share.push(0)), refused);
    assert_eq!(with(|share| share[1184..].fill(0)), refused, "small order");
    assert_eq!(
        with(|share| share[..1184].fill(0xff)),
        refused,
        "not reduced"
    );
    let completed = answer(&good).expect("a secret");
    assert_eq!(completed.pub_key.len(), 1088 + 32);
    let secret = client.complete(&completed.pub_key).expect("a secret");
    assert_eq!(secret.secret_bytes(), completed.secret.secret_bytes());
    assert_eq!(secret.secret_bytes().len(), 64);
}

#[test]
fn the_hybrid_agrees_and_refuses() {
    hybrid_refuses_and_agrees();
    install_lanes();
    on_fiber(hybrid_refuses_and_agrees);
    assert!(counters().lane_operations[Kind::X25519.index()] > 0);
}

/// A job that is alone does not pause. Where lanes are faster even so, they are asked at once.
#[test]
fn alone_in_lanes() {
    install_lanes_for_one(SOFTWARE / 2);
    every_group_agrees_on_fibers();
    let counted = counters();
    for kind in KINDS {
        assert_eq!(counted.at_once[kind.index()], 12, "{kind:?}");
    }
    assert_eq!(counted.precomputed(), 36);
    assert_eq!(counted.software.iter().sum::<u64>(), 0);
    for group in GROUPS {
        on_fiber(move || refuses(group));
    }
    assert!(counters().precomputed() >= 36);
    assert_eq!(counters().submitted.iter().sum::<u64>(), 0);
}

#[test]
fn a_lone_exchange_that_is_slower_in_lanes_is_left_to_aws_lc() {
    install_lanes_for_one(3 * SOFTWARE);
    every_group_agrees_on_fibers();
    let counted = counters();
    assert_eq!(counted.at_once.iter().sum::<u64>(), 0);
    assert_eq!(counted.submitted.iter().sum::<u64>(), 0);
    // In TLS 1.2, an exchange that aws-lc has begun is its own.
    assert_eq!(counted.software[Reason::Cheaper.index()], 36);
    assert_eq!(counted.software.iter().sum::<u64>(), 36);
}
