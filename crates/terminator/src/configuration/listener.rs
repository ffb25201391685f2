//! `[[listener]]` of the configuration file.

use std::net::SocketAddr;
use std::time::Duration;

use super::file::{MAX_COUNT, ROOT_VALUES};
use super::section::{Problem, Section, Value};
use super::values::{self, Content};
use super::{
    Backend, Balance, CertificateFiles, ClientCertificates, Health, Listener, Network,
    ProxyProtocol, Service, Upstream,
};

/// Reads a `[[listener]]`. `taken` are the addresses of other listeners.
pub(super) fn read(value: Value<'_>, taken: &mut Vec<SocketAddr>) -> Result<Listener, Problem> {
    const KEYS: &[&str] = &[
        "listen",
        "certificates",
        "versions",
        "groups",
        "alpn",
        "client_certificates",
        "proxy_protocol_from",
        "backends",
        "root",
        "proxy_protocol",
        "balance",
        "connect_timeout",
        "response_timeout",
        "body_timeout",
        "retries",
        "fail_timeout",
        "max_connections",
        "queue",
        "queue_timeout",
        "health",
        "authorities",
        "trust_headers_from",
    ];
    let mut section = value.section("[[listener]]", KEYS, ROOT_VALUES)?;
    let mut addresses = Vec::new();
    for value in section
        .require("listen", "\"0.0.0.0:443\"")?
        .list_or_one()?
    {
        let address =
            values::listen(value.text("\"0.0.0.0:443\"")?).map_err(|error| value.problem(error))?;
        if taken.contains(&address) {
            return Err(value.problem("is the address of another listener: remove one of the two"));
        }
        taken.push(address);
        addresses.push(address);
    }
    let example = "[ { certificate = \"a.pem\", key = \"a.key\" } ]";
    let certificates: Result<_, Problem> = section
        .require("certificates", example)?
        .list_or_one()?
        .into_iter()
        .map(certificate_files)
        .collect();
    let mut listener = Listener::new(addresses, certificates?, service(&mut section)?);

    if let Some(value) = section.take("versions") {
        (listener.tls12, listener.tls13) = (false, false);
        for value in value.list_or_one()? {
            match value.text("\"1.3\"")? {
                "1.2" => listener.tls12 = true,
                "1.3" => listener.tls13 = true,
                _ => return Err(value.problem("must be \"1.2\" or \"1.3\"")),
            }
        }
    }
    section.read("groups", &mut listener.groups, |value| {
        let mut groups = Vec::new();
        for value in value.list_or_one()? {
            let group =
                values::group(value.text("\"X25519\"")?).map_err(|error| value.problem(error))?;
            if groups.contains(&group) {
                return Err(value.problem("is in the list twice"));
            }
            groups.push(group);
        }
        Ok(groups)
    })?;
    section.read("alpn", &mut listener.alpn, |value| {
        let is_http = !matches!(listener.service, Service::Tcp(_));
        let values = value.list_or_one()?;
        values
            .into_iter()
            .map(|value| alpn(value, is_http))
            .collect()
    })?;
    section.read(
        "client_certificates",
        &mut listener.client_certificates,
        |value| client_certificates(value).map(Some),
    )?;
    section.read(
        "proxy_protocol_from",
        &mut listener.proxy_protocol_from,
        networks,
    )?;
    Ok(listener)
}

fn networks(value: Value<'_>) -> Result<Vec<Network>, Problem> {
    let values = value.list_or_one()?.into_iter();
    values
        .map(|value| value.parse("\"10.0.0.0/8\"", values::network))
        .collect()
}

fn certificate_files(value: Value<'_>) -> Result<CertificateFiles, Problem> {
    let name = "{ certificate = \"a.pem\", key = \"a.key\" }";
    let mut section = value.section(name, &["certificate", "key", "ocsp"], &[])?;
    let mut files = CertificateFiles {
        certificate: section.require("certificate", "\"a.pem\"")?.path()?,
        key: section.require("key", "\"a.key\"")?.path()?,
        ocsp: None,
    };
    section.read("ocsp", &mut files.ocsp, |value| value.path().map(Some))?;
    Ok(files)
}

fn alpn(value: Value<'_>, is_http: bool) -> Result<String, Problem> {
    value.parse("\"http/1.1\"", |text| match text {
        "" => Err("must not be empty".to_owned()),
        text if text.len() > 255 => Err("must have at most 255 bytes".to_owned()),
        text if is_http && !["h2", "http/1.1"].contains(&text) => {
            Err("must be \"h2\" or \"http/1.1\": this listener serves HTTP only".to_owned())
        }
        text => Ok(text.to_owned()),
    })
}

fn client_certificates(value: Value<'_>) -> Result<ClientCertificates, Problem> {
    let name = "{ authorities = \"ca.pem\", required = true }";
    let mut section = value.section(name, &["authorities", "required"], &[])?;
    let mut clients = ClientCertificates {
        authorities: section.require("authorities", "\"ca.pem\"")?.path()?,
        required: true,
    };
    section.read("required", &mut clients.required, Value::boolean)?;
    Ok(clients)
}

/// Keys that apply to backends only.
const BACKEND_KEYS: &[&str] = &[
    "proxy_protocol",
    "balance",
    "connect_timeout",
    "response_timeout",
    "body_timeout",
    "retries",
    "fail_timeout",
    "max_connections",
    "queue",
    "queue_timeout",
    "health",
    "authorities",
    "trust_headers_from",
];

fn service(section: &mut Section<'_>) -> Result<Service, Problem> {
    let value = match (section.take("backends"), section.take("root")) {
        (Some(backends), None) => backends,
        (None, Some(root)) => {
            for key in BACKEND_KEYS {
                if let Some(value) = section.take(key) {
                    return Err(
                        value.problem("is for backends, and this listener has a root: remove it")
                    );
                }
            }
            return root.path().map(Service::Files);
        }
        (Some(_), Some(root)) => {
            return Err(root.problem("excludes \"backends\": remove one of the two"));
        }
        (None, None) => {
            let text = "[[listener]] lacks \"backends\" or \"root\", such as backends = [\"127.0.0.1:3128\"]";
            return Err(section.problem(text));
        }
    };
    let (content, backends) = backends(value)?;
    let upstream = upstream(section, content, backends)?;
    Ok(match content {
        Content::Bytes => Service::Tcp(upstream),
        Content::Http => Service::Http(upstream),
    })
}

fn backends(value: Value<'_>) -> Result<(Content, Vec<Backend>), Problem> {
    let example = "\"127.0.0.1:3128\" or \"http://127.0.0.1:8080\"";
    let mut expected = None;
    let mut backends = Vec::new();
    for value in value.list_or_one()? {
        let (content, backend) =
            values::backend(value.text(example)?).map_err(|error| value.problem(error))?;
        if *expected.get_or_insert(content) != content {
            return Err(value.problem(
                "must match the first one: all with http:// or https://, or none of them",
            ));
        }
        if backends.contains(&backend) {
            return Err(value.problem("is in the list twice"));
        }
        backends.push(backend);
    }
    // An empty list has been refused before.
    Ok((expected.unwrap_or(Content::Bytes), backends))
}

fn upstream(
    section: &mut Section<'_>,
    content: Content,
    backends: Vec<Backend>,
) -> Result<Upstream, Problem> {
    let mut upstream = Upstream::new(backends);
    section.read("proxy_protocol", &mut upstream.proxy_protocol, |value| {
        let choices = [("v1", ProxyProtocol::V1), ("v2", ProxyProtocol::V2)];
        value.choice(&choices).map(Some)
    })?;
    section.read("balance", &mut upstream.balance, |value| {
        value.choice(&[
            ("round_robin", Balance::RoundRobin),
            ("least_connections", Balance::LeastConnections),
        ])
    })?;
    section.read(
        "connect_timeout",
        &mut upstream.connect_timeout,
        Value::duration,
    )?;
    section.read(
        "response_timeout",
        &mut upstream.response_timeout,
        |value| time_of_backend(value, content),
    )?;
    section.read("body_timeout", &mut upstream.body_timeout, |value| {
        time_of_backend(value, content)
    })?;
    section.read("retries", &mut upstream.retries, |value| {
        value.number(0, 100).map(|number| number as u32)
    })?;
    section.read(
        "fail_timeout",
        &mut upstream.fail_timeout,
        Value::duration_or_zero,
    )?;
    section.read("max_connections", &mut upstream.max_connections, |value| {
        value.number(1, MAX_COUNT)
    })?;
    section.read("queue", &mut upstream.queue, |value| {
        value.number(0, MAX_COUNT)
    })?;
    section.read(
        "queue_timeout",
        &mut upstream.queue_timeout,
        Value::duration,
    )?;
    section.read("health", &mut upstream.health, |value| {
        health(value, content).map(Some)
    })?;
    if let Some(value) = section.take("authorities") {
        if upstream
            .backends
            .iter()
            .all(|backend| backend.tls.is_none())
        {
            return Err(value.problem(
                "is for backends with tls:// or https://; for clients there is client_certificates",
            ));
        }
        upstream.authorities = Some(value.path()?);
    }
    section.read(
        "trust_headers_from",
        &mut upstream.trust_headers_from,
        |value| match content {
            Content::Http => networks(value),
            Content::Bytes => {
                Err(value.problem("is for backends with http://; bytes are passed on as they are"))
            }
        },
    )?;
    Ok(upstream)
}

fn time_of_backend(value: Value<'_>, content: Content) -> Result<Duration, Problem> {
    match content {
        Content::Http => value.duration(),
        Content::Bytes => Err(value
            .problem("is for backends with http://; for bytes there is idle_timeout in [limits]")),
    }
}

fn health(value: Value<'_>, content: Content) -> Result<Health, Problem> {
    let name = "{ interval = \"5s\", path = \"/healthz\" }";
    let mut section = value.section(name, &["interval", "path"], &[])?;
    let mut health = Health {
        interval: section.require("interval", "\"5s\"")?.duration()?,
        path: None,
    };
    section.read("path", &mut health.path, |value| {
        if content == Content::Bytes {
            return Err(
                value.problem("is for backends with http://: remove it to check connections only")
            );
        }
        value.parse("\"/healthz\"", |text| {
            let is_plain = text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'#');
            match text.starts_with('/') && is_plain {
                true => Ok(Some(text.to_owned())),
                false => Err("must be a path such as \"/healthz\", without spaces".to_owned()),
            }
        })
    })?;
    Ok(health)
}
