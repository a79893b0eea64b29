//! The main thread while a server runs: it serves the management socket, hears signals, and decides when to end.

use crate::signals::{Ending, Endings};
use rnic_device::adapter::AdapterHandle;
use rnic_device::management::{ManagementServer, ServerAnswers, folder};
use rnic_device::server::Server;
use rnic_device::vfio_user::BindError;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the thread sleeps at most.
const IDLE: Duration = Duration::from_secs(1);
/// How often the guests are looked at once the end has been asked for.
const LEAVING: Duration = Duration::from_millis(100);
/// How long an adapter may take to say whether a guest is attached.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// How a server is known to the tools beside it, and what it does for them.
#[derive(Clone, Debug)]
pub struct Supervision {
    pub name: String,
    pub strict: bool,
    /// Crossings and packets are recorded from the start.
    pub record: bool,
}

/// Takes the server's name in the folder.
pub fn listen(folder: &Path, name: &str) -> Result<ManagementServer, String> {
    let uid = rustix::process::geteuid().as_raw();
    ManagementServer::bind(&folder::socket_of(folder, name), uid).map_err(|error| match error {
        BindError::Alive { .. } => {
            format!("a server {name} runs already in {}: stop it, or choose another --name", folder.display())
        }
        error => error.to_string(),
    })
}

/// Serves until the end is asked for and nobody is harmed by it, or asked for again.
pub fn run(
    server: &Server,
    mut management: ManagementServer,
    supervision: &Supervision,
    endings: &Endings,
) -> Result<(), String> {
    let mut answers = ServerAnswers::new(server, &supervision.name, supervision.strict);
    if supervision.record {
        answers.record_all().map_err(|error| error.to_string())?;
    }
    let mut asked = false;
    loop {
        let timeout = if asked { LEAVING } else { IDLE };
        let turn = management.turn(&mut answers, &endings.fds(), timeout);
        turn.map_err(|error| format!("{}: {error}", management.path().display()))?;
        answers.end_unwatched(Instant::now());
        match endings.take() {
            Some(Ending::Terminate) => break,
            Some(Ending::Interrupt) if asked => break,
            Some(Ending::Interrupt) => {
                asked = true;
                let attached = attached(server);
                if !attached.is_empty() {
                    tell!("rnic serve: {}", warning(&attached));
                }
            }
            None => {}
        }
        if asked && attached(server).is_empty() {
            break;
        }
    }
    endings.close();
    Ok(())
}

/// Adapters that a guest is attached to; one that does not answer is taken for one.
fn attached(server: &Server) -> Vec<&str> {
    let is_attached = |handle: &AdapterHandle| handle.call_within(CALL_LIMIT, |adapter| adapter.is_attached());
    let attached = server.adapters.iter().filter(|handle| is_attached(handle).unwrap_or(true));
    attached.map(AdapterHandle::name).collect()
}

fn warning(attached: &[&str]) -> String {
    let adapters = if attached.len() == 1 { "adapter" } else { "adapters" };
    format!(
        "a guest is attached to {adapters} {}. When this server ends, QEMU goes on: the device reads as all ones, what is \
         written to it is lost, nothing connects again, and a reboot of the guest aborts QEMU.\n\
         rnic serve: shut the guest down, and this server ends by itself; interrupt again to end it now",
        attached.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_names_the_adapters_and_what_will_happen() {
        let text = warning(&["A", "B"]);
        for words in ["adapters A, B", "all ones", "reboot of the guest aborts QEMU", "interrupt again"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}
