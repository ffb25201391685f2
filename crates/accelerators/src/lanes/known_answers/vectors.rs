//! Published operands and results.

use hex_literal::hex;
use slipstream_keys::ec::Curve;
use slipstream_keys::rsa::Size;

/// A key agreement.
pub(super) struct Agreement {
    pub(super) private: &'static [u8],
    pub(super) peer: &'static [u8],
    pub(super) secret: &'static [u8],
}

/// A key pair, and its signature with a given nonce.
pub(super) struct Signature {
    pub(super) private: &'static [u8],
    pub(super) public: &'static [u8],
    pub(super) digest: &'static [u8],
    pub(super) nonce: &'static [u8],
    pub(super) signature: &'static [u8],
}

/// The result of the [example key](slipstream_keys::example::example_key) for an input whose bytes
/// are all 1.
pub(super) fn rsa(size: Size) -> &'static [u8] {
    match size {
        Size::Rsa2048 => &RSA2048,
        Size::Rsa3072 => &RSA3072,
        Size::Rsa4096 => &RSA4096,
    }
}

/// The first ones of NIST's Cryptographic Algorithm Validation Program, ECC CDH primitive.
pub(super) fn agreement(curve: Curve) -> &'static Agreement {
    match curve {
        Curve::P256 => &P256_AGREEMENT,
        Curve::P384 => &P384_AGREEMENT,
    }
}

/// RFC 6979, appendices A.2.5 and A.2.6: the message "sample" with SHA-256 and SHA-384.
pub(super) fn signature(curve: Curve) -> &'static Signature {
    match curve {
        Curve::P256 => &P256_SIGNATURE,
        Curve::P384 => &P384_SIGNATURE,
    }
}

/// RFC 7748, section 6.1: Alice's side.
pub(super) static X25519: Agreement = Agreement {
    private: &hex!("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"),
    peer: &hex!("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"),
    secret: &hex!("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"),
};

/// Alice's public key.
pub(super) static X25519_PUBLIC: [u8; 32] =
    hex!("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");

static P256_AGREEMENT: Agreement = Agreement {
    private: &hex!("207c43a79bfee03db6f4b944f53d2fb76cc49ef1c9c4d34d51b6c65c4db6932d"),
    peer: &hex!(
        "
            04
            df3989b9fa55495719b3cf46dccd28b5153f7808191dd518eff0c3cff2b705ed
            422294ff46003429d739a33206c8752552c8ba54a270defc06e221e0feaf6ac4
        "
    ),
    secret: &hex!("96441259534b80f6aee3d287a6bb17b5094dd4277d9e294f8fe73e48bf2a0024"),
};

static P384_AGREEMENT: Agreement = Agreement {
    private: &hex!(
        "3cc3122a68f0d95027ad38c067916ba0eb8c38894d22e1b15618b6818a661774ad463b205da88cf699ab4d43c9cf98a1"
    ),
    peer: &hex!(
        "
            04
            a7c76b970c3b5fe8b05d2838ae04ab47697b9eaf52e764592efda27fe7513272734466b400091adbf2d68c58e0c50066
            ac68f19f2e1cb879aed43a9969b91a0839c4c38a49749b661efedf243451915ed0905a32b060992b468c64766fc8437a
        "
    ),
    secret: &hex!(
        "5f9d29dc5e31a163060356213669c8ce132e22f57c9a04f40ba7fcead493b457e5621e766c40a2e3d4d6a04b25e533f1"
    ),
};

static P256_SIGNATURE: Signature = Signature {
    private: &hex!("c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721"),
    public: &hex!(
        "
            04
            60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6
            7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299
        "
    ),
    digest: &hex!("af2bdbe1aa9b6ec1e2ade1d694f41fc71a831d0268e9891562113d8a62add1bf"),
    nonce: &hex!("a6e3c57dd01abe90086538398355dd4c3b17aa873382b0f24d6129493d8aad60"),
    signature: &hex!(
        "
            efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716
            f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8
        "
    ),
};

static P384_SIGNATURE: Signature = Signature {
    private: &hex!(
        "6b9d3dad2e1b8c1c05b19875b6659f4de23c3b667bf297ba9aa47740787137d896d5724e4c70a825f872c9ea60d2edf5"
    ),
    public: &hex!(
        "
            04
            ec3a4e415b4e19a4568618029f427fa5da9a8bc4ae92e02e06aae5286b300c64def8f0ea9055866064a254515480bc13
            8015d9b72d7d57244ea8ef9ac0c621896708a59367f9dfb9f54ca84b3f1c9db1288b231c3ae0d4fe7344fd2533264720
        "
    ),
    digest: &hex!(
        "9a9083505bc92276aec4be312696ef7bf3bf603f4bbd381196a029f340585312313bca4a9b5b890efee42c77b1ee25fe"
    ),
    nonce: &hex!(
        "94ed910d1a099dad3254e9242ae85abde4ba15168eaf0ca87a555fd56d10fbca2907e3e83ba95368623b8c4686915cf9"
    ),
    signature: &hex!(
        "
            94edbb92a5ecb8aad4736e56c691916b3f88140666ce9fa73d64c4ea95ad133c81a648152e44acf96e36dd1e80fabe46
            99ef4aeb15f178cea1fe40db2603138f130e740a19624526203b6351d0a3a94fa329c145786e679e7b82c71a38628ac8
        "
    ),
};

static RSA2048: [u8; 256] = hex!(
    "
    849722c8d2eb8b3bec62ff3354a9ce4f4bc2e71f1ff964c74d94965897f96a087ef506b06c79c0aa2080c912
    5d90adba87ccf52a5882bfb89e86f6caf216f50e44c12a9c755249028e2406f44a77837517331367f2b1d29a
    729cb4d26f68f7aad569621611b8439c5a21cf170fcfdd234f1a2adbd3137389fc889ac4d77d84fb0e0c995b
    e507f5962a6381e39f7487c81c42a02ccdf26482017820bd9ad0178d87bffce075e93b967ef95f71bfac527c
    9eb48b1803c2ddfb130df7815f1d435c6d809502e9ab363c3deafc2f0c801a74a946f1f5aa51de8988f5aa8a
    9dfe5f51d7be912d452640c964601d327df2e94253edb30b606fbf0e11a81c25d594ff22
    "
);

static RSA3072: [u8; 384] = hex!(
    "
    461f9b955dd416f362c576fde48c22518df9af1449a122a431b4096a07620e9c33a0a8c1b8f4a99fe8c28145
    6a3084ba612077b621c027f7e3480d4b4417be3f88898af3425d3ce2debc8bf4e75379ea44ca9b4c273ddf35
    119b88742d6073c0e92947222db96e253a2ebfaa4bbad9a146ff7c445fc0276827a3c0854d54a4bf1cf2cf28
    bb304075958c07dcf32f156d0054df866d631b6068a6d84fc644d815ced2eda43aa75e1ecdb5b5080b4a6c40
    3f5ffdb554e559585f03e7810b7ed1257255acb2b8e4d6b181030467a75cd0729a0662426044247da1e3ddb0
    7664a78793a6f69cf52487a4c886ab29b018db2b31597794b694d3bf143a59b507fcb02fcd3fb492a13fd39d
    90f9bd64d409b89d7aeab9aa3808812a9e5ad3069be363a7bdb08652592aa563420f94ff5a8fdaa836fe1228
    db244859292b59aee052b32810f59edd8e3dae7dc0fde15f697d867d44123cee14b7b32f0b054a6429687eee
    5848b5cc71ff4294431ac4ee4e8fa6ea48021af7c3a9840982515cb73d1bd742
    "
);

static RSA4096: [u8; 512] = hex!(
    "
    5b2ba2b521c37ae959e76f2a0b3b052ce25a59caa2b15f2b9b2c849fca70a550609fcf4065fe8f6fbc83917d
    39fdb790e5341596d00d4b1d89ab5ef6fbc776f1553cbe3fec5ab4bf60c2c18b720f0cc75f7b0be2dccd634a
    2e3f811f44e02247f72cfe38a1af90746cc1927b8cfda0bd0831631cbca43f826e99a33a04b9a20184f150e3
    8b58f1b53c902b49a89a3998cc8955496c3d377bf23e1db82947982abca060615684b9acaa2f45499b35c761
    54c081c27775549fb88019fbeb92f02eb781fea211bcf3b17853d6428f6137d074a2dfe0755dc7ec5970bfef
    0b73675eefc27d8c139ff0d23d181d7f006da36cb971f0544ac310e2db071aaa1f205395fcdf141b2c698ab2
    8db58ee31b04444eb00077e2ba038bd633c8abaade108e354fc656bf7cdf7bcbed7b7d1fc85cc30e89b38702
    ed06b0969b721f361bcd5b32ae58a43cbd592bb815201fc1dcaa1f23fdf75cfe7015e7e996c52246f37e2e4b
    5724d067f6db8ed57251ed3004cac4964982f76bdc8ac045d9015f768ff3d8a849be535433074db72baa988a
    2c77453c3879b41fc9c7e0911c28c08ab1ea32337ec8dd6c59ee19aa2f152fd8284c3ddd5b3eedc769bd799d
    081432274090d3b2838d5d1bc1a26bc4f21179c62b7f9db632194a68357f345be6b2ebb2be7e9088a3a5ea1a
    6214c9751077137a1a960eb211df043acacb8ecbc3dd6c07e8af47cd
    "
);
