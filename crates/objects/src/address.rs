//! What a mount names: from its text, the environment and the files of the AWS tools to an operator of OpenDAL's.

use opendal::services::S3;
use opendal::{HttpTransporter, Operator};
use opendal_http_transport_reqwest::ReqwestTransport;
use std::collections::HashMap;
use std::path::PathBuf;

/// Region where nobody says one: what other stores than Amazon's expect.
const REGION: &str = "us-east-1";

/// Opens `s3:…` or `objects:…`.
pub fn operator(text: &str) -> Result<Operator, String> {
    // Once; a second one is refused and is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    opendal::install_default();
    HttpTransporter::install_default(ReqwestTransport::new(client()?));
    if let Some(rest) = text.strip_prefix("s3:") {
        return s3(rest);
    }
    let rest = text.strip_prefix("objects:").ok_or_else(|| format!("{text}: neither s3: nor objects:"))?;
    let (service, options) = rest.split_once('?').unwrap_or((rest, ""));
    let options = options.split('&').filter(|option| !option.is_empty()).map(|option| {
        let (name, value) = option.split_once('=').ok_or_else(|| format!("{text}: '{option}' is not of the form NAME=VALUE"))?;
        Ok((name.to_string(), value.to_string()))
    });
    let options = options.collect::<Result<Vec<_>, String>>()?;
    Operator::via_iter(service, options).map_err(|error| format!("{text}: {}", error.message()))
}

/// What requests are sent by. Redirects are not followed: signatures are made for one host, and what is sent beside them
/// (session tokens, contents of files) is for that host alone.
fn client() -> Result<reqwest::Client, String> {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
    client.map_err(|error| format!("an HTTP client: {error}"))
}

/// `http://HOST[:PORT]/BUCKET[/PREFIX]`, or `//BUCKET[/PREFIX]`, whose end point is Amazon's or in the environment.
fn s3(text: &str) -> Result<Operator, String> {
    let parts = Parts::split(text).ok_or_else(|| {
        format!("s3:{text}: not of the form s3:http://HOST[:PORT]/BUCKET[/PREFIX], s3:https://… or s3://BUCKET[/PREFIX]")
    })?;
    let profile = Profile::load();
    let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| variable(name));
    let region = region.or_else(|| profile.value("region")).unwrap_or_else(|| REGION.to_string());
    let mut builder = S3::default().bucket(parts.bucket).root(parts.prefix).region(&region);
    let endpoint = parts.endpoint.map(str::to_string);
    let endpoint = endpoint.or_else(|| ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].iter().find_map(|name| variable(name)));
    if let Some(endpoint) = endpoint.or_else(|| profile.value("endpoint_url")) {
        builder = builder.endpoint(endpoint.trim_end_matches('/'));
    }
    if let Some(name) = variable("AWS_PROFILE") {
        builder = builder.profile(&name);
    }
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        builder = builder.disable_ec2_metadata();
    }
    Operator::new(builder).map_err(|error| format!("s3:{text}: {}", error.message()))
}

#[derive(Debug, PartialEq, Eq)]
struct Parts<'t> {
    endpoint: Option<&'t str>,
    bucket: &'t str,
    prefix: &'t str,
}

impl<'t> Parts<'t> {
    fn split(text: &'t str) -> Option<Parts<'t>> {
        let (endpoint, rest) = match text.strip_prefix("//") {
            Some(rest) => (None, rest),
            None => {
                let host = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"))?;
                let slash = host.find('/').filter(|&slash| slash > 0)?;
                let cut = text.len() - host.len() + slash;
                (Some(&text[..cut]), &text[cut + 1..])
            }
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        (!bucket.is_empty()).then_some(Parts { endpoint, bucket, prefix })
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The settings of the chosen profile in `~/.aws/config`. Keys and secrets are found by OpenDAL itself.
struct Profile(HashMap<String, String>);

impl Profile {
    fn load() -> Profile {
        let path = variable("AWS_CONFIG_FILE").map(PathBuf::from);
        let path = path.or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".aws/config")));
        let text = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_string());
        Profile::parse(&text, &name)
    }

    fn parse(text: &str, profile: &str) -> Profile {
        let (mut values, mut inside) = (HashMap::new(), false);
        for line in text.lines() {
            let trimmed = line.trim();
            if let Some(section) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                let section = section.0.trim();
                inside = section.strip_prefix("profile ").map_or(section, str::trim) == profile;
            } else if inside && !line.starts_with([' ', '\t', '#', ';']) {
                // What is indented belongs to another service's settings.
                if let Some((name, value)) = trimmed.split_once('=') {
                    values.insert(name.trim().to_string(), value.trim().to_string());
                }
            }
        }
        Profile(values)
    }

    fn value(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: end point, bucket and prefix are found, and what has no bucket is refused.
    #[test]
    fn parts() {
        let split = Parts::split;
        let found = |endpoint, bucket, prefix| Some(Parts { endpoint, bucket, prefix });
        assert_eq!(split("http://h:7070/b"), found(Some("http://h:7070"), "b", ""));
        assert_eq!(split("https://h/b/p/q/"), found(Some("https://h"), "b", "p/q/"));
        assert_eq!(split("//b/p"), found(None, "b", "p"));
        for wrong in ["", "b", "http://h", "http://h/", "http:///b", "//", "ftp://h/b"] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    /// Goal: a profile's own settings are read, and not another's or a service's.
    #[test]
    fn profiles() {
        let text = "[default]\nregion = a\n[profile two]\nregion=b\ns3 =\n  region = c\nendpoint_url = http://e\n";
        assert_eq!(Profile::parse(text, "default").value("region").as_deref(), Some("a"));
        assert_eq!(Profile::parse(text, "two").value("region").as_deref(), Some("b"));
        assert_eq!(Profile::parse(text, "two").value("endpoint_url").as_deref(), Some("http://e"));
        assert_eq!(Profile::parse(text, "three").value("region"), None);
    }
}
