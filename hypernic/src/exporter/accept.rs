//! Which of the two texts a scraper prefers.

use crate::client::Exposition;

/// The text that an `Accept` prefers; the older one if it says nothing of the newer.
pub(super) fn form(accept: &str) -> Exposition {
    let (mut open, mut plain) = (0.0, 0.0);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or("");
        let mut quality = 1.0;
        let mut known = true;
        for part in parts {
            match part.split_once('=') {
                Some(("q", q)) => quality = q.parse().unwrap_or(0.0),
                Some(("version", version)) if kind == "application/openmetrics-text" => {
                    known = matches!(version, "1.0.0" | "0.0.1");
                }
                _ => {}
            }
        }
        match kind {
            "application/openmetrics-text" if known => open = f32::max(open, quality),
            "text/plain" | "text/*" => plain = f32::max(plain, quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain {
        return Exposition::Openmetrics;
    }
    Exposition::Prometheus
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                       text/plain;version=0.0.4;q=0.3,*/*;q=0.2";

    #[test]
    fn the_form_is_negotiated() {
        use Exposition::{Openmetrics, Prometheus};
        for (accept, wanted) in [
            (NEW, Openmetrics),
            ("", Prometheus),
            ("*/*", Prometheus),
            ("application/openmetrics-text", Openmetrics),
            ("application/openmetrics-text;version=2.0.0", Prometheus),
            ("application/openmetrics-text;q=0.1, text/plain", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=x", Prometheus),
            (
                "application/vnd.google.protobuf;q=0.9, text/plain;q=0.2",
                Prometheus,
            ),
        ] {
            assert_eq!(form(accept), wanted, "{accept}");
        }
    }
}
