//! The server that the tests talk to.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use slipstream_integration::{
    Build, Configuration, Content, Engine, Lanes, Nginx, Origin, Request, decode, unused_address,
};
use slipstream_testbed::scratch::ScratchDirectory;

/// Value of `slipstream_gzip_chunk_size` and the like: small, so that everything that happens at a
/// border happens often.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;
pub(crate) const STREAM_BYTES: usize = 64 << 10;
pub(crate) const THRESHOLD_BYTES: usize = 24 << 10;

/// The places at which responses are compressed, and the ways to wait for a device. Each has a
/// server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Software,
    Failover,
    Device,
    Pipelined,
}

impl Place {
    pub(crate) const ALL: [Place; 4] = [
        Place::Software,
        Place::Failover,
        Place::Device,
        Place::Pipelined,
    ];

    pub(crate) fn directives(self) -> &'static str {
        match self {
            Place::Software => "slipstream_gzip_offload software;",
            Place::Failover => "slipstream_gzip_offload failover;",
            Place::Device => "slipstream_gzip_offload device;",
            Place::Pipelined => "slipstream_gzip_offload device; slipstream_gzip_mode pipelined;",
        }
    }
}

/// Files, an upstream server, and where nginx listens.
pub(crate) struct Site {
    pub(crate) origin: Origin,
    folder: ScratchDirectory,
    addresses: [SocketAddr; Place::ALL.len()],
    http2: SocketAddr,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with(Origin::new())
    }

    pub(crate) fn with(origin: Origin) -> Self {
        let folder = ScratchDirectory::new().unwrap();
        // Workers of an nginx that was started by root are another user.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        Self {
            origin,
            folder,
            addresses: Place::ALL.map(|_| unused_address()),
            http2: unused_address(),
        }
    }

    /// The folder that is served as `/files/`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a file there.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.file(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Puts that much of `content` there, and returns the path to ask for.
    pub(crate) fn file(&self, content: Content, length: usize) -> String {
        let name = format!("{}/{length}", content.name());
        if !self.folder.file(&name).exists() {
            self.write(&name, &content.bytes(length));
        }
        format!("/files/{name}")
    }

    pub(crate) fn address(&self, place: Place) -> SocketAddr {
        self.addresses[place as usize]
    }

    /// The address at which HTTP/2 is spoken without TLS, with [`Place::Failover`].
    pub(crate) fn http2(&self) -> SocketAddr {
        self.http2
    }

    pub(crate) fn get(&self, place: Place, path: &str) -> Request {
        Request::get(self.address(place), path)
    }

    /// nginx with a server for each place, with small chunks.
    pub(crate) fn start(&self, build: Build, engine: &Engine) -> Nginx {
        Nginx::start(build, &self.configuration(build, Some(engine), &small()))
    }

    /// A server for each place, with more directives in http.
    pub(crate) fn configuration(
        &self,
        build: Build,
        engine: Option<&Engine>,
        directives: &str,
    ) -> Configuration {
        let (parameter, directive) = build.http2();
        let device = engine.map(Engine::directive).unwrap_or_default();
        // A warning says that a device is asked for where there is none.
        let directives_of = |place: Place| engine.map_or("", |_| place.directives());
        let mut configuration = Configuration::new()
            .lanes(Lanes::ForcedWith(device))
            .slipstream(None)
            .http(directives);
        let locations = self.locations();
        for place in Place::ALL {
            configuration = configuration.server(
                format!("{} backlog=2048 sndbuf=64k", self.address(place)),
                &[],
                format!("{} {locations}", directives_of(place)),
            );
        }
        let directives = directives_of(Place::Failover);
        configuration.server(
            format!("{}{parameter}", self.http2),
            &[],
            format!("{directive} {directives} {locations}"),
        )
    }

    /// Files, and whatever the upstream server has.
    pub(crate) fn locations(&self) -> String {
        format!(
            "location /files/ {{ alias {}/; types {{}} default_type text/html; }}
             location / {{ proxy_pass http://{}; proxy_http_version 1.1; }}",
            self.folder().display(),
            self.origin.address()
        )
    }
}

/// Compression with sizes at whose borders everything happens often.
pub(crate) fn small() -> String {
    format!(
        "slipstream_gzip on; slipstream_gzip_codings gzip zstd; slipstream_gzip_http_version 1.0;
         slipstream_gzip_chunk_size {CHUNK_BYTES}; slipstream_gzip_stream_size {STREAM_BYTES};
         slipstream_gzip_sw_threshold {THRESHOLD_BYTES};"
    )
}

/// Compression as it is unless a directive says otherwise.
pub(crate) fn defaults() -> &'static str {
    "slipstream_gzip on; slipstream_gzip_codings gzip zstd;"
}

/// Fetches a page, and complains unless it is `content`, encoded as it was asked for.
pub(crate) fn check(request: &Request, coding: &str, content: &[u8]) -> Result<(), String> {
    let request = request.clone().accepting(coding);
    let response = request.fetch().map_err(|error| error.to_string())?;
    let actual = (response.status, response.header("Content-Encoding"));
    if actual != (200, Some(coding)) {
        return Err(format!("{actual:?}"));
    }
    match decode(&response) == content {
        true => Ok(()),
        false => Err("the content is another".to_owned()),
    }
}
