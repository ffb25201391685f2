//! The parameters of the curves (SP 800-186, sections 3.2.1.3 and 3.2.1.4): y^2 = x^3 - 3 x + b.

use std::sync::OnceLock;

use super::base_table::BaseTable;
use super::field::Modulus as LaneModulus;
use super::integers::Modulus;
use super::moduli::{FieldP256, FieldP384, OrderP256, OrderP384};

/// A curve whose integers have L limbs of 64 bits, and N digits of 52 bits in lanes.
pub(super) trait Parameters<const L: usize, const N: usize>: 'static {
    /// Arithmetic of lanes modulo p.
    type Field: LaneModulus<N>;
    /// Arithmetic of lanes modulo the order.
    type Order: LaneModulus<N>;

    /// p.
    const FIELD: Modulus<L>;
    /// n, the order of the base point.
    const ORDER: Modulus<L>;
    const B: [u64; L];
    /// The base point.
    const BASE_X: [u64; L];
    const BASE_Y: [u64; L];

    /// Bits of a window of the scalar for multiples of the base point. The table has 2^(bits - 1)
    /// points per window.
    const BASE_WINDOW: usize;

    /// The table of multiples of the base point, which the first use computes.
    fn base_table() -> &'static OnceLock<BaseTable>;
}

pub(super) struct P256;
pub(super) struct P384;

impl Parameters<4, 5> for P256 {
    type Field = FieldP256;
    type Order = OrderP256;

    const FIELD: Modulus<4> = Modulus::new(P256_FIELD);
    const ORDER: Modulus<4> = Modulus::new(P256_ORDER);
    const B: [u64; 4] = [
        0x3bce_3c3e_27d2_604b,
        0x651d_06b0_cc53_b0f6,
        0xb3eb_bd55_7698_86bc,
        0x5ac6_35d8_aa3a_93e7,
    ];
    const BASE_X: [u64; 4] = [
        0xf4a1_3945_d898_c296,
        0x7703_7d81_2deb_33a0,
        0xf8bc_e6e5_63a4_40f2,
        0x6b17_d1f2_e12c_4247,
    ];
    const BASE_Y: [u64; 4] = [
        0xcbb6_4068_37bf_51f5,
        0x2bce_3357_6b31_5ece,
        0x8ee7_eb4a_7c0f_9e16,
        0x4fe3_42e2_fe1a_7f9b,
    ];
    const BASE_WINDOW: usize = 7;

    fn base_table() -> &'static OnceLock<BaseTable> {
        static TABLE: OnceLock<BaseTable> = OnceLock::new();
        &TABLE
    }
}

impl Parameters<6, 8> for P384 {
    type Field = FieldP384;
    type Order = OrderP384;

    const FIELD: Modulus<6> = Modulus::new(P384_FIELD);
    const ORDER: Modulus<6> = Modulus::new(P384_ORDER);
    const B: [u64; 6] = [
        0x2a85_c8ed_d3ec_2aef,
        0xc656_398d_8a2e_d19d,
        0x0314_088f_5013_875a,
        0x181d_9c6e_fe81_4112,
        0x988e_056b_e3f8_2d19,
        0xb331_2fa7_e23e_e7e4,
    ];
    const BASE_X: [u64; 6] = [
        0x3a54_5e38_7276_0ab7,
        0x5502_f25d_bf55_296c,
        0x59f7_41e0_8254_2a38,
        0x6e1d_3b62_8ba7_9b98,
        0x8eb1_c71e_f320_ad74,
        0xaa87_ca22_be8b_0537,
    ];
    const BASE_Y: [u64; 6] = [
        0x7a43_1d7c_90ea_0e5f,
        0x0a60_b1ce_1d7e_819d,
        0xe9da_3113_b5f0_b8c0,
        0xf8f4_1dbd_289a_147c,
        0x5d9e_98bf_9292_dc29,
        0x3617_de4a_9626_2c6f,
    ];
    const BASE_WINDOW: usize = 6;

    fn base_table() -> &'static OnceLock<BaseTable> {
        static TABLE: OnceLock<BaseTable> = OnceLock::new();
        &TABLE
    }
}

pub(super) const P256_FIELD: [u64; 4] = [
    0xffff_ffff_ffff_ffff,
    0x0000_0000_ffff_ffff,
    0x0000_0000_0000_0000,
    0xffff_ffff_0000_0001,
];

pub(super) const P256_ORDER: [u64; 4] = [
    0xf3b9_cac2_fc63_2551,
    0xbce6_faad_a717_9e84,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_0000_0000,
];

pub(super) const P384_FIELD: [u64; 6] = [
    0x0000_0000_ffff_ffff,
    0xffff_ffff_0000_0000,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

pub(super) const P384_ORDER: [u64; 6] = [
    0xecec_196a_ccc5_2973,
    0x581a_0db2_48b0_a77a,
    0xc763_4d81_f437_2ddf,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];
