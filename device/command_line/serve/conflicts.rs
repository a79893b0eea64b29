//! What each adapter has to have for itself: a name of its own for each socket, an address on the switch, and a port; and
//! values of one adapter that contradict each other.

use super::configuration::Configuration;
use rnic_switch::PORTS_MAX;

/// What two of them share, as a sentence.
pub fn find(configuration: &Configuration) -> Option<String> {
    let ports = configuration.adapters.len() + configuration.plain_ports.len();
    if ports > PORTS_MAX {
        return Some(format!("a switch has {PORTS_MAX} ports, and {ports} are asked for"));
    }
    sockets(configuration)
        .or_else(|| macs(configuration))
        .or_else(|| addresses(configuration))
        .or_else(|| rates(configuration))
}

/// Rates of congestion control that leave nothing to control.
fn rates(configuration: &Configuration) -> Option<String> {
    configuration.adapters.iter().find_map(|adapter| {
        let of = &adapter.congestion;
        let (line, least, added) =
            (of.line_bits_per_second.0, of.min_bits_per_second.0, of.additive_bits_per_second.0);
        let name = adapter.name.as_str();
        if least >= line {
            return Some(format!(
                "adapter {name}: min_bits_per_second {least} is not below line_bits_per_second {line}: no cut would cut anything"
            ));
        }
        (added >= line / 2).then(|| {
            format!("adapter {name}: additive_bits_per_second {added} is half of line_bits_per_second {line} or more: no cut would last")
        })
    })
}

/// Of names that differ, as `A` and `A.net`.
fn sockets(configuration: &Configuration) -> Option<String> {
    let of_adapter = |name: &str| [format!("{name}.sock"), format!("{name}.net.sock")];
    let adapters = configuration.adapters.iter().map(|adapter| adapter.name.as_str());
    let named = adapters.flat_map(|name| of_adapter(name).map(|socket| (name, socket)));
    let ports = configuration.plain_ports.iter().map(|name| (name.as_str(), format!("{name}.port.sock")));
    let (first, second, socket) = pair(named.chain(ports))?;
    Some(format!("{first} and {second} would both listen on {socket}: choose another name"))
}

fn macs(configuration: &Configuration) -> Option<String> {
    let macs = configuration.adapters.iter().map(|adapter| (adapter.name.as_str(), adapter.mac().to_string()));
    let (first, second, mac) = pair(macs)?;
    Some(format!("adapters {first} and {second} have the same MAC address {mac}"))
}

fn addresses(configuration: &Configuration) -> Option<String> {
    let of_adapter = |name, gids: &[super::values::Address]| -> Vec<_> {
        gids.iter().map(|address| (name, address.to_string())).collect()
    };
    let all = configuration.adapters.iter().flat_map(|adapter| of_adapter(adapter.name.as_str(), &adapter.gids));
    let (first, second, address) = pair(all)?;
    Some(match first == second {
        true => format!("adapter {first} is given the GID {address} twice"),
        false => format!("adapters {first} and {second} have the same GID {address}"),
    })
}

/// The first two with the same thing, and the thing.
fn pair<'a>(owned: impl Iterator<Item = (&'a str, String)>) -> Option<(&'a str, &'a str, String)> {
    let mut seen: Vec<(&str, String)> = Vec::new();
    for (owner, thing) in owned {
        if let Some((first, _)) = seen.iter().find(|(_, known)| *known == thing) {
            return Some((first, owner, thing));
        }
        seen.push((owner, thing));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::file::parse;

    fn conflict(text: &str) -> Option<String> {
        find(&parse(text).expect("a configuration"))
    }

    #[test]
    fn what_two_would_share_is_named_with_both() {
        assert_eq!(conflict(""), None);
        for (text, words) in [
            ("[[adapter]]\nname = \"A\"\n[[adapter]]\nname = \"A.net\"", "A and A.net would both listen on A.net.sock"),
            (
                "[[adapter]]\nname = \"A\"\nmac = \"02:00:00:00:00:01\"\n[[adapter]]\nname = \"B\"\nmac = \"02:00:00:00:00:01\"",
                "A and B have the same MAC address 02:00:00:00:00:01",
            ),
            (
                "[[adapter]]\nname = \"A\"\ngids = [\"10.0.0.1\"]\n[[adapter]]\nname = \"B\"\ngids = [\"10.0.0.1\"]",
                "A and B have the same GID 10.0.0.1",
            ),
            ("[[adapter]]\nname = \"A\"\ngids = [\"10.0.0.1\", \"10.0.0.1\"]", "twice"),
            ("plain_ports = [\"x\", \"x\"]", "x and x would both listen on x.port.sock"),
            (
                "[[adapter]]\nname = \"A\"\n[adapter.congestion]\nline_bits_per_second = 100000000",
                "adapter A: min_bits_per_second 100000000 is not below line_bits_per_second 100000000",
            ),
            (
                "[[adapter]]\nname = \"A\"\n[adapter.congestion]\nadditive_bits_per_second = 50000000000",
                "adapter A: additive_bits_per_second 50000000000 is half",
            ),
        ] {
            let said = conflict(text);
            assert!(said.as_ref().is_some_and(|said| said.contains(words)), "{text}: {said:?}");
        }
        let many: String = (0..65).map(|number| format!("[[adapter]]\nname = \"N{number}\"\n")).collect();
        assert!(conflict(&many).is_some_and(|said| said.contains("64 ports, and 65")));
    }
}
