//! Measures what a batch costs against software, once, before a worker serves anybody.

use std::time::Duration;

use hex_literal::hex;
use slipstream_lanes::rsa::{
    Components, Operation, PrivateKey, Size, Workspace, private_operation,
};
use slipstream_lanes::{Backend, LANES};

use crate::policy::Costs;

/// How often software and lanes are measured in turn, so that a disturbance that lasts hits both.
const ROUNDS: usize = 2;

/// How often each is measured in a round. The least of all is taken, since whatever disturbs a
/// measurement only adds to it.
const REPETITIONS: usize = 3;

/// Measures a batch of `backend` for every size. `software` is called with each size, and answers
/// what one operation takes in the caller's software; see [`example_key`] for a key to do it with.
pub fn calibrate(backend: Backend, mut software: impl FnMut(Size) -> Option<Duration>) -> Costs {
    let mut costs = Costs::default();
    let mut workspace = Workspace::new();
    for size in Size::ALL {
        for _ in 0..ROUNDS {
            keep_least(&mut costs.software[size.index()], software(size));
            keep_least(
                &mut costs.batch[size.index()],
                batch(backend, size, &mut workspace),
            );
        }
    }
    costs
}

/// The least of a few measurements of `operation`, in CPU time of this thread: a server may start
/// on a machine that is busy with other things.
pub fn least(mut operation: impl FnMut()) -> Duration {
    let measure = |_| {
        let start = thread_cpu_time();
        operation();
        thread_cpu_time().saturating_sub(start)
    };
    (0..REPETITIONS)
        .map(measure)
        .min()
        .expect("at least one repetition")
}

fn keep_least(least: &mut Option<Duration>, measured: Option<Duration>) {
    *least = match (*least, measured) {
        (Some(least), Some(measured)) => Some(least.min(measured)),
        (least, measured) => least.or(measured),
    };
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: room for one timespec; the clock is one that every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn batch(backend: Backend, size: Size, workspace: &mut Workspace) -> Option<Duration> {
    let key = PrivateKey::new(backend, &example_key(size).components).ok()?;
    let input = vec![1; size.bytes()];
    let mut outputs = vec![vec![0; size.bytes()]; LANES];
    Some(least(|| {
        let mut operations: Vec<Operation<'_>> = outputs
            .iter_mut()
            .map(|output| Operation {
                key: &key,
                input: &input,
                output,
            })
            .collect();
        let results = private_operation(workspace, &mut operations);
        assert!(
            results.iter().all(Result::is_ok),
            "lanes fail on a known key"
        );
    }))
}

/// A key that protects nothing: it is printed here, in the source.
pub struct ExampleKey {
    /// What lanes need of it.
    pub components: Components<'static>,
    /// The private exponent, which only software asks for.
    pub private_exponent: &'static [u8],
}

/// The published key with which costs are measured.
pub fn example_key(size: Size) -> &'static ExampleKey {
    match size {
        Size::Rsa2048 => &RSA2048,
        Size::Rsa3072 => &RSA3072,
        Size::Rsa4096 => &RSA4096,
    }
}

static RSA2048: ExampleKey = ExampleKey {
    components: Components {
        modulus: &hex!(
            "
            c8c6c83b329d403f700b369d4c2287003e8219b5dcc79426101d710ee22cacac9e032ef02ef720e26f8a73df
            93e97721a5bbda1248c7f3cfd2ea9201ccf07808f6c3b65a21e9a14fc51d270314bc2372586a5f1f3e368e84
            a76746c28cfa2418d1ef4e91a963f80f68707d201c7b78ec82121db3560cd771f9a97b662b9ba2924cbb0966
            9c5a3e38ea26814577778a88233c05221500f19a0c557c93e75e3f2ff8a8e5ac20762663d4406f66e24b1e67
            265f52c026c346cf5923673b579ce0318e7c459e43155cc6e6d020915df3075ff566ef6a46b57fe238cfccb4
            2e2fe62971b034d8a00b7e058ece571147fe7e24ef59d473f6e71e53288237e73edf0be9
        "
        ),
        public_exponent: &[1, 0, 1],
        prime1: &hex!(
            "
            e519c2b4e797c6b7b9ac1d25edd1df59e7a7e65195608a9305a8e8c3fe1edd8c128581cb8f22cf0a588bea32
            e65283c5676246e79d913130ea45733c871a134fcf4e6e89c8e2867015c28c093264d144256aeb08a30f4702
            24688891700201482b38090043dae7f9d7a79a49787dd463fd477f97575babfe2b3202433dfe3e19
        "
        ),
        prime2: &hex!(
            "
            e059a9be31a337a0361deef75357378ffb4abf63896c7078e28bf10c08650a5bde2bb70a28e93ea1022d6a27
            fe3bb8257e703958d90f1bd2c9b220d6be23f72c5df45d423e11bb8645ea77684e7e9f08f6e938279a12d886
            13ec9ddb22712f25d3a339466a8b3734544f9d993c37513485ffff1cfdb105ca064c605f2d395651
        "
        ),
        exponent1: &hex!(
            "
            6b4d4873807106e2b034dba61320141340bbd3d4ec38be4ea3fcfba0285a7e7b87853e487feed6b7cac72556
            d7a7580e5220a682febaad2672e33a58e412236f62f22235a87fe86580db90c911f0444f3d933927df6f5d5b
            b47fbd4f18fde769cccc3ef2ffd4fc87792907cb5782dfc24133869ff48b7c1fdc4d5cdfef9e2fa9
        "
        ),
        exponent2: &hex!(
            "
            2b674d5e9d6dcd4a328e11f849685b3880ce523ea88c9129e1f25efd0bf6b84d53ab336b44c4f337e51af229
            b096cf2679d2ae559110ca3a3a893aaf30f3f652e00e71a86a27b616e119de6610a190950467d4545d0b7e56
            5a2e71cfbe57155f0515d3f3da92fa6826538cd2e38274346c243dafd728d34ce5710b47fe90d431
        "
        ),
        coefficient: &hex!(
            "
            019758f6a2c486987bc979ea9a91dc24c0d2918adcd8f135a08f72df72e31638d2794cfd61e2d00f3fa73e25
            9f1e9e5d3c3784d2b1e544a14a276f79d608b4d8d5b67022df2132b37a434b859331c4383ce97a19871d065c
            9cec44492fd25b47a7e2916f6784de0dc71e9ca6e4e0042493e8a61b9766071ec0ec89a3c16dbb5c
        "
        ),
    },
    private_exponent: &hex!(
        "
            04383c4d55341d9d6fb406a0f1f090548a9bc6a14e3b72134637ae307d43a9d9e364c6fbe48acc59c1f51f98
            117660caf7de1db85068066965e208f1497ebcd1186996d7a85a8e09bc876f32570158bfde9896b8f40066c8
            a6318b18cbe876718099065654a06d9e5a4831f306b23821855eced9bdeb5d6c4f6e56d1f804e87adfe2fb0b
            19a4829dce793abb9e7f91d9bfb9630c69d4bfffef05b2120a93e02d7b0063352ae2def3e296fab42af02934
            ea10e39c2c2622089c0732a40715cfe944dab5c31bc128dc7cee1f1eb4314f9025788a0b06b83e9849a60a40
            5b47312d183dde3ebfbcc56462b709785bbf5901738483a1984bdc47e3e6e458b2d79451
        "
    ),
};

static RSA3072: ExampleKey = ExampleKey {
    components: Components {
        modulus: &hex!(
            "
            aab74c7c66c722c41da4ad3104505ed52837d1b0ad16a0d777da59166ad33d00d6808fe0e74882a86d5540cb
            6e0aa69a30aa8c254f4536c3296bd2b17d1b2b54479ba3127935952b4c99cdae41ddf380ec0d0313de7e75ae
            e865021cc2f3f205acbf17fbb2a17096dbd3ea71eb5d2d6ef2d1e45be586a4085a0a8a7afeb4c9a27baa1974
            395103ab4fdf0c7688c8827d400437e9edd65059e5bdee132d93957e76996265ffd1aca81ac4d946f43f6992
            0e898ee76ee589bd1fad5976b26784658bbad3f2c961873aa2df787f368d30ec44e6711eac68f46f4384a17e
            cc9a627d4f71b1dca32cd6fc51644ffd02d8e203f93d91a03ac6b40bfa48d822b82e1d0ee0148e54db8fe258
            15afea7cabb90cb7be85bba544592f4a71ad7299f59441171085a51c90015d20803d422bfbd8baf021be2543
            ab008d34ff97b6b976d6d2f0bcebc93141d528253ae930b1eef8a4e4db1fb8189bee53ab5eacddf1a68ff0a7
            4d2e49c46e877df236ce3f5956c36365f62e4f3cc1ea81a0407db66ce7c0e2f1
        "
        ),
        public_exponent: &[1, 0, 1],
        prime1: &hex!(
            "
            e384a5788fe8fb0e8e71c24a6aa35de6d666a26279adca05d6786ccaec990b68f5bd3c59c3f701c3e13752e7
            82874381124ba6251bf284ce3f9eb004ad197f9b26b41fcdb14479bb2361079037830fc61c07477c5e0519c2
            30ac9b25d593a4e5c3afc1d0c381c8c83a1ef3b3c5b50e235689a0437688e1a8ccab7296b62a7af7c5921c64
            b7fe1b9b3739e9de0e84ecee6a497e5c441594ecf0b49df52f4a2e51665505dd0a662b1b722ac4d41ee939d5
            8e061d8d3dd1230b5629518e1f8675b9
        "
        ),
        prime2: &hex!(
            "
            c0164b5e66bae537d14aec90ec0ce1bf63a957605df2ff438ac4ee87e1d129451f1c7559fb6ff6c6066183c8
            67d93633e7c6379dc1389c3812529e831e284ba2732b2082fb8717d70eff826c40521a4e54879ce5c4ac28c7
            10b8e7b7dc76d867c42e5a0818a21c9f2cc5e01eb515d5fd39f8844ef74fd3c7faa8276311e46b63aa99e8f3
            975ac53507e34c4a28c86986ad71b62d7c75d6cc8203e07c0a39d0fcb44ee71fb4f2eadd62580ae120ef1463
            6cb1dce0ac36f3eac48790ac0fec72f9
        "
        ),
        exponent1: &hex!(
            "
            14770f074c3291ba9a7783197c841b63332fe235676a897c82f12c2008ae2f878e6b2a2d8ce20007a58f7b66
            95a8231b4e10fdede298aaf77e6380c3baea4b3f22791b4f3e3dc19162ba4c9add536daccd429e5c827c84f7
            a1b734f16f47ab927b4aa8ed65589c3dde74804950645bd433e9873fea3e9fc5b63b49c062bc6979360d517e
            81ca5aa358915e06fa595c92897ef8ddc5c6073254e87a38debb16757df5f1e413166394416db56cbb27116b
            b32dbba4c3c5b71842f4ce803137c009
        "
        ),
        exponent2: &hex!(
            "
            3cc0105027df5e153c2d1d0a6c8d5a6c4461cf4f9c06f9326c5602369975a43ec72b21f6366e5fb69b5805ec
            c0e352a031e25fbe95d88897b73bc80421ea8e992f2169a3e357037431bb1f8d8afe2c71af8c4053eed2a006
            ed43fd8d09bdd08d68df5bfc098663d4f7bd1137c4ffc5f0d37fc4a090d8ff5ad4ec8fa0668d3e6584142f37
            b31bb31925887e9d49aeb0a9367bab29519e973390bf172543baab5cf0cdaf8d3896472f8325e332f64e86bd
            37283d7a151d402174cc8735d3c76d49
        "
        ),
        coefficient: &hex!(
            "
            46a4a8edb5f0d8b856f3a04cac9996d384f941e36d380bedba3a9c32246e7c576e0ebd8d769c543e9998c8f8
            21b9f87a85ac9ae574faaa15360ac7427ec0989ec45253804d0070f4987a5296abcf8bc88a4a62aa580835e1
            a68ae0028c34a18d848cb829b279dea12d4ae2f22d9e31423428fbfd04ed8396acfad5248e0b24b028214452
            d26284697fe5265d0bb6888dcb6707683a5156381adf4acb56e8228c570716a0a1223f722342128ee39eee41
            db6747a7e303906e6acf294e3784ca90
        "
        ),
    },
    private_exponent: &hex!(
        "
            150679419308f093b5d0ebd1af25d4e02cd15f1e82dad8196175ff65dee7404aa3a076d7ecb445ff4763ea14
            83eb84e4559d13a09eb8380be64494d0ee4713d98fee2fb1dd42c7a9eb07c048b76d0609f9488af9fdfb9633
            e2045ab3bf20fb4c4e9fc46ce7edb127ab5058be0a0e5243a95d4762380d1293c2bf2c9a0457b0c3b5b657e7
            340df1c53e138afde84fc59e766d6e937d8ad91f914788944d1731a0bf2b99ee5508f65a47ddb9a2deff1659
            fa375fe5ca0734251a4b27cb1222e4afc74d7213a1ab60ee117cadd7e480da2855ba5f3deca1708afc68e9d0
            0e40d1cb857c65fca33ce1ee36706c729dd26a8a5c2bfe3d83c35ee2a1fe920086307ecd26f7f6b1562f3081
            86c2e67033b3dbdc60044833c8e7dd2557f46c26c42ca9f3dec43f881a956aa2dde7c1c37d3cfe9956da4c7d
            87ba29fd4d2eba59b3458532481f10185e9906d20526f4a6d47ba12feba12c00c2ad5642b9dc418cd82151ea
            b9ea478e0259d54d6619435932c76636c18babdb43c46b7da4252b7749b2b4e1
        "
    ),
};

static RSA4096: ExampleKey = ExampleKey {
    components: Components {
        modulus: &hex!(
            "
            d5bbeac99fa35954b0f89bda6066a00f6022974fa359167492da4d9f3ca32734c6816f7c352e7f3628d5cddf
            e2f924c1770db27e0c0b4c9bd76a7b1880dcfd5651863098b220871a4f235a16ae34275ba3b1c5e1ff064e18
            4d42a0f611d55c06ae0fb4fdb3e0e848dd4260791b27431785e0f608d98a1c8701406fad90b77dbeaf240c03
            e8e665ad6a61fb4553dfc23654311082d65086f73cf29d37eb6e2eadbc5b9ca1e00ad052e72cd1c5285a84df
            20e036a8834ded54198ba69b9e15ce41f789bdda3b3d94649a0bd5e951dc7bbc9cae40c0ca7a2fa9fbcb6c38
            9ba6b41fad9d0f490697a4104446615cf2f9665094ea4cebda2ea08c5f5187047ce5aca4e056f56904b23ff4
            c84a39febdb3a8a0c81b204ee0c4126e4a48794c951ba424e599a244c13f4a1ca73307ee53e74a88fcc13b51
            be90c0abf403351092a7b6c8edfd471631aad3ed70647ebb18ffa75a0948fcdb39847b80bd6b8353f737f893
            23fbcd020f322129dde0b527216c21b8af1b79ba0c76af6be74a868343409223079179934c7d95f952287dd8
            06cb9b779c63190d84b723fa565468382d4df2767e8ddd6126b4c9b4faacac5175e6bbb87feea872570d1c5f
            00c033e8aa537840616f786c45854651f48f6f5e4b77e2d4ef5e8a81ed81dbefe93b4df89414db7aba74fd2e
            5aa95c641555aa7cb2092fe3e2d402ec0ab153f21441676e9e2e4671
        "
        ),
        public_exponent: &[1, 0, 1],
        prime1: &hex!(
            "
            f677bfce87026c22ecb9c476b6e5e00d9bea0664580287de3a1b1a33afe975cb8955056f8f74e04fc4dab713
            f3a278f03ed0e3d804619bbb7e6ead1c903ecd4aea516be852686017054a0a849afe65a45a9941d66e487c0c
            32648f8296df396cac56a919a1d2e2e0f4b08da9d7764cbceaaabadb30a7397e38720723527343d33bc127db
            0d5cda8c3dabc43020be19751644da2cdce8b285ad6fc04a74346d879f84cd5f05e6ea102494437db79e8321
            761e47f2b1ad5e6246d9a1c0d534defc7ae16b751035d1c52517c3da9e13691f7535464ffe62de20c173a5f9
            273e5bd912433cfbb9c23774aceb008adabdb024adbb16064a75acd7eaf534a581ee6c93
        "
        ),
        prime2: &hex!(
            "
            de00132b3f93bbe07803f58acb562cd6648440fc592b9b191c6233857d8dc56d787e13a7542444c434c5f2b0
            e6c9eb21ff0a96685e2a5ce1a16f284948b2b1dde88165a47699907297c90513d92aef7f1bac9a527eda62f5
            5a4f8154a59e86b37abf66800926b7ab2d6d54dd9136f27fc8aa602a237e8266c442f064afbc3112ab67cc4d
            6c66230b5c4b5066803a40594f8e75cbbb8da3c40ad40d7cc6162647d2b9ecbff65e971bd13e40d3afd5d1b8
            99f1e5e9c36d09d8b0290f578f64c7ef98dd516c726eef0a2ccf7c2622d5390a0493bb14d34cf0510cb22f91
            c4bef6eb2e533eba6065161e11fe3d938d29a0dc9e0b67a9a0532c4085b70152b161a76b
        "
        ),
        exponent1: &hex!(
            "
            9150a9562b63d23e0534c210fc652c64d9b8716c5837a5c3f09e6a246f6346806ac8261c5088a8785fa854a8
            fecc9c6189a7bfae6d66df5afc8064b0a29b648ef6f86a96df7f8aa808064f8d3f951e7878b2438f1a16c28c
            ae697bf392e0aa0ad8d17f820d57394d48f78f8ec3ea8bf416a7f2e3a91bef59ec0dcf079465416819a318cc
            9e6450b6bee5b7166937abeacce66b7c68030abea6336d3c78a730acf5f066e5cfa505fbde954bf5a37d61f3
            28a151ea55b7d21e3f87b146f06debcb10e837631ddb9d828f0c23fd91960034fbf61d2eacddbdf9b2156d96
            28fd2b4a20ea63da46fbab96af1d1f84bed3783727f75654ff31c266cbb127092e4254e1
        "
        ),
        exponent2: &hex!(
            "
            7536dee827e26e017ffcbf29b060e8bdae46f2350b33ede95d463063dc3dfdaee63ed34bb72e8b2c799cc69e
            46ccf81c7417f800552fd2e8c31ef8cb70da00f5e4ec656967c17f3632144e5d037e1b0426ed8471e84e908f
            7146a747b546b562907dfcb5bf9f34bce9f85f25b9a5a47679d213824c4960bab8078bfbed99d4e341a34588
            dfa23200ae938979055d3c5aab99d17267adca79192a8b9084da6f0ddf2291f16d38d65a36a9c2fac24d8835
            0afb60e4836dd0141c3721c59e8d9ccf520c1110cc7eec319825592c9d99ad4b2fcd7caaeb422564f5ea2319
            b923072677c836479bdbe3c8aec1696bbdcdec0470621f32bdd70c7768e28e8d45e104cf
        "
        ),
        coefficient: &hex!(
            "
            0f0b854c0ea5cd07a59f588c9a8fc583482ca6d19dc1e3aae31c5d4a6ba4b069d4f4250de1c359dccf25a714
            a4abe9d51c8110ff7f9d37b0d8209d5d4a54001705edb49efe556fda9b8278bcd6c26dec1f5d66b2fdb4e1b8
            15651d3d881bca9fa9cef5afeee8e3e7dc24aa826c2462ae3b0018338cfef63dcbfd0c1acb4747272d252f4d
            d0a6d2835bd0a834f45216a6807c2fc4e3b523f1e404877a123c3f5cf47b06339308e57f543982962dac17e0
            c9a7805fe2a5d7d7e3357080594d4d9d5dabab29f800e0c68cba4ec0db1a4ee28c045e5fbaf0e1200370edb7
            2d205f978b41ef48ea5f30dcb162d89bbff49c0f24979766a194987a0b2de956be8e1e4c
        "
        ),
    },
    private_exponent: &hex!(
        "
            54a4a0eccc3dc288d9b4faf3d6ad8dc1c90ea9e1ae0cffe996a6c18ac856cc9607ef0699a7ee0c0f04c8f749
            2cf801e8641f968a78769916368f42c48773fd180c1d1a6dbe4d4773d1d76c3c032d4050f858d4c7155a07df
            73e969194a22b6d92661ae09b30ce4b0c67f1cf999194966ad6c53c359736aacc480223a184fb28aab8d98fc
            8b6582ead4708d33fd6d65da62293422bc811392221eeac85482441625bc1a21b93a4f1a25d708140e511ac1
            caa140c4278bdaeb2d5ab2d67a1aa49e574bc3560393f58a89bf1a2dd66f7cc94b3b6f056aaa4cea027fa312
            20023adf38c034677526e4a0548992d15ea00a36eb6286a7f8b5f27ae4dcc29db260baa7af71e48f2d87aeab
            b802d2451521df1939f267ce9c25c2b9d6fea4f9315858fce22da3f1f80f6e272ba6058863459ab37812410d
            80e59bdcd3832189d916229d5364d33b61a950b41de1e8234e285a52a691dc86ffdcc03f56a9afbb59af99df
            5fec13c09dc00cffb67607379dd06a9d332e721f1bc7634a10e8bdc11f1989fcc532df735894f0f7f21c0f55
            08e04ae69a6702f9383ec9b6a2426d074216198c0a41e4f2b51f711862458b05cab2dfae439b55ecb9988662
            a740d7e767559962cb89ac1bdde550ba5574499dbfdbcf7e97886ace8e4ff76bf389e3317a1a27d82c17442a
            bd514450feeadd57d1ffebe6cc6f5c4e5d4c922a52b028f07e8e1469
        "
    ),
};
