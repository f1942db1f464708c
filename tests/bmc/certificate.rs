//! Certificates for simulated BMCs.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};

/// Writes `ca.pem`, and `cert.pem` with `key.pem` that it signed for 127.0.0.1, to `directory`.
pub fn of_an_authority(directory: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority
        .distinguished_name
        .push(DnType::CommonName, "an authority");
    let certificate = authority.self_signed(&key).unwrap();
    write(directory, "ca.pem", &certificate.pem());
    let issuer = Issuer::new(authority, key);
    let own = KeyPair::generate().unwrap();
    let certificate = for_host("127.0.0.1").signed_by(&own, &issuer).unwrap();
    write(directory, "cert.pem", &certificate.pem());
    write(directory, "key.pem", &own.serialize_pem());
}

/// Writes a `cert.pem` for `host` that signed itself, as `ca.pem` too, as `openssl req -x509` makes it:
/// it calls itself an authority.
pub fn of_its_own(directory: &Path, host: &str, is_expired: bool) {
    let key = KeyPair::generate().unwrap();
    let mut own = for_host(host);
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    if is_expired {
        own.not_before = date_time_ymd(2020, 1, 1);
        own.not_after = date_time_ymd(2021, 1, 1);
    }
    let certificate = own.self_signed(&key).unwrap();
    write(directory, "ca.pem", &certificate.pem());
    write(directory, "cert.pem", &certificate.pem());
    write(directory, "key.pem", &key.serialize_pem());
}

fn for_host(host: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    let name = match host.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(host.try_into().unwrap()),
    };
    params.subject_alt_names.push(name);
    params.distinguished_name.push(DnType::CommonName, host);
    params
}

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}
