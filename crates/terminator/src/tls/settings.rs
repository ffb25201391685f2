//! What rustls is told for a listener.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion, version};

use super::certificates::Certificates;
use super::pem;
use crate::configuration::{ClientCertificates, Listener};

/// Encrypts the tickets of one listener, with keys that are replaced every six hours and kept for twelve. A listener's tickets are no use at
/// another one, where clients may have to show a certificate.
#[derive(Clone, Debug)]
pub(crate) struct Tickets {
    producer: Arc<dyn ProducesTickets>,
    /// Who resumes a session is not asked for a certificate again, so tickets end where other ones are asked for.
    asked: Asked,
}

/// The settings of `listener`, and its tickets: those of `previous`, if that asked its clients for the same.
///
/// # Errors
/// Names the file and says what is wrong.
pub(crate) fn settings(
    listener: &Listener,
    tickets_per_handshake: usize,
    provider: Arc<CryptoProvider>,
    certificates: Certificates,
    previous: Option<&Tickets>,
) -> Result<(ServerConfig, Tickets), String> {
    let (verifier, asked) = verifier(listener.client_certificates.as_ref(), &provider)?;
    let tickets = match previous {
        Some(previous) if previous.asked == asked => previous.clone(),
        _ => Tickets {
            producer: Ticketer::new().map_err(|error| format!("tickets: {error}"))?,
            asked,
        },
    };
    let versions: Vec<&'static SupportedProtocolVersion> = [
        (listener.tls13, &version::TLS13),
        (listener.tls12, &version::TLS12),
    ]
    .into_iter()
    .filter_map(|(is_offered, version)| is_offered.then_some(version))
    .collect();
    let mut settings = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(certificates));
    settings.alpn_protocols = listener
        .alpn
        .iter()
        .map(|name| name.clone().into_bytes())
        .collect();
    // Sessions are kept by clients only: what is kept here would be of no use to another process, and take memory.
    settings.session_storage = Arc::new(NoServerSessionStorage {});
    settings.send_tls13_tickets = tickets_per_handshake;
    if tickets_per_handshake > 0 {
        settings.ticketer = tickets.producer.clone();
    }
    Ok((settings, tickets))
}

/// The authorities that certificates are asked of, if they are.
type Asked = Option<(ClientCertificates, Vec<CertificateDer<'static>>)>;

fn verifier(
    asked: Option<&ClientCertificates>,
    provider: &Arc<CryptoProvider>,
) -> Result<(Arc<dyn ClientCertVerifier>, Asked), String> {
    let Some(asked) = asked else {
        return Ok((WebPkiClientVerifier::no_client_auth(), None));
    };
    let (roots, authorities) = pem::authorities(&asked.authorities)?;
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = match asked.required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    let verifier = builder
        .build()
        .map_err(|error| format!("{}: {error}", asked.authorities.display()))?;
    Ok((verifier, Some((asked.clone(), authorities))))
}
