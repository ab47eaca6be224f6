//! The server that a worker connects to: the address lists of configurations.

use crate::configuration::{Configuration, ConfigurationError};
use kvorum_erlang_terms::Term;

/// One server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

/// The targets of a run, in the order in which workers are assigned to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Targets(Vec<Target>);

impl Targets {
    /// Reads the list under `addresses_key`; entries without a port get the port under `port_key`.
    pub(super) fn read(
        configuration: &Configuration,
        addresses_key: &'static str,
        port_key: &'static str,
        default_port: u16,
    ) -> Result<Self, ConfigurationError> {
        let port = configuration.integer(port_key, 1..=65_535, default_port)?;
        let listed = configuration.convert(addresses_key, |term| normalize(term, port))?;
        let default = || Target {
            host: "127.0.0.1".to_owned(),
            port,
        };
        Ok(Self(listed.unwrap_or_else(|| vec![default()])))
    }

    /// All targets.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Target> {
        self.0.iter()
    }

    /// The target of the worker with this id (from 1).
    ///
    /// The rule of basho_bench: element (id mod count) of the list, so worker 1 gets the second
    /// element if there is one.
    pub(super) fn of_worker(&self, id: u32) -> Target {
        let index = usize::try_from(id).unwrap_or(0) % self.0.len().max(1);
        self.0.get(index).cloned().unwrap_or_else(|| Target {
            host: "127.0.0.1".to_owned(),
            port: 8087,
        })
    }
}

/// Parses entries. The list is in reverse order, because basho_bench builds it by prepending, but
/// ports within an entry keep their order.
fn normalize(term: &Term, default_port: u16) -> Result<Vec<Target>, String> {
    const EXPECTED: &str = "expected a list of \"host\", {127,0,0,1}, {Host, Port} or \
                            {Host, [Port, ...]}";
    let list = term
        .as_list()
        .filter(|list| !list.is_empty())
        .ok_or(EXPECTED)?;
    let mut targets = Vec::new();
    for entry in list.iter().rev() {
        let parsed = entry_targets(entry, default_port);
        targets.extend(parsed.ok_or_else(|| format!("{EXPECTED}, not {entry}"))?);
    }
    Ok(targets)
}

fn entry_targets(entry: &Term, default_port: u16) -> Option<Vec<Target>> {
    if let Some(host) = host(entry) {
        return Some(vec![Target {
            host,
            port: default_port,
        }]);
    }
    let [address, ports] = entry.as_tuple()? else {
        return None;
    };
    let host = host(address)?;
    let ports = match ports {
        Term::List(ports) => ports.iter().map(port).collect::<Option<Vec<u16>>>()?,
        single => vec![port(single)?],
    };
    Some(
        ports
            .into_iter()
            .map(|port| Target {
                host: host.clone(),
                port,
            })
            .collect(),
    )
}

fn port(term: &Term) -> Option<u16> {
    term.as_integer()
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0)
}

fn host(term: &Term) -> Option<String> {
    match term {
        Term::Atom(name) => Some(name.clone()),
        Term::String(name) => Some(name.clone()).filter(|name| !name.is_empty()),
        Term::Tuple(parts) if parts.len() == 4 => {
            let bytes: Vec<u8> = numbers(parts)?;
            Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string())
        }
        Term::Tuple(parts) if parts.len() == 8 => {
            let groups: Vec<u16> = numbers(parts)?;
            Some(std::net::Ipv6Addr::from(<[u16; 8]>::try_from(groups).ok()?).to_string())
        }
        _ => None,
    }
}

fn numbers<T: TryFrom<i128>>(parts: &[Term]) -> Option<Vec<T>> {
    parts
        .iter()
        .map(|part| part.as_integer().and_then(|part| T::try_from(part).ok()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Targets, ConfigurationError> {
        let mut configuration = Configuration::default();
        configuration.add_override(text).unwrap();
        Targets::read(&configuration, "ips", "port", 8087)
    }

    #[test]
    fn workers_are_dealt_out_as_basho_bench_does() {
        let targets = read("ips=[\"A\", \"B\", \"C\"]").unwrap();
        let hosts: Vec<String> = (1..=4).map(|id| targets.of_worker(id).host).collect();
        assert_eq!(hosts, ["B", "A", "C", "B"]);
        assert_eq!(
            read("port=1").unwrap().of_worker(7).to_string(),
            "127.0.0.1:1"
        );
    }

    #[test]
    fn addresses_take_every_published_form() {
        let targets = read(
            "ips=[{127,0,0,1}, {\"h\", 8087}, {{10,0,0,1}, 17}, {{10,0,0,2}, [37, 47]}, \
             {0,0,0,0,0,0,0,1}]",
        );
        let texts: Vec<String> = targets.unwrap().0.iter().map(Target::to_string).collect();
        assert_eq!(
            texts,
            [
                "::1:8087",
                "10.0.0.2:37",
                "10.0.0.2:47",
                "10.0.0.1:17",
                "h:8087",
                "127.0.0.1:8087"
            ]
        );
    }

    #[test]
    fn other_forms_are_refused_by_name() {
        for text in [
            "ips=[]",
            "ips=x",
            "ips=[{1,2,3}]",
            "ips=[{\"h\", 0}]",
            "ips=[{1,2,3,400}]",
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("{Host, [Port, ...]}"), "{text}: {error}");
        }
    }
}
