//! `rnic list`: the servers that run, and what dead ones have left.

use crate::connection::{Failure, Found, ServerChoice, exit_of, find, names, print, print_json};
use crate::exit::Exit;
use clap::Args;
use rnic_device::management::reports::server::ServerReport;
use serde_json::json;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    long_about = "The servers of this user that run, with their adapters.\n\n\
        A server that was killed leaves its sockets behind; it is shown as dead. Nothing has to be cleaned up: the next \
        server of the same name takes them over.",
    after_help = "Examples:\n  rnic list\n  rnic list --json | jq -r '.servers[].adapters[].socket'\n\n\
        Exit: 0 also when no server runs, 3 when the folder cannot be read."
)]
pub struct ListOptions {
    /// Folder of the servers' sockets [default: $XDG_RUNTIME_DIR/rnic].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// One JSON object: `servers`, `dead`, `broken`.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &ListOptions) -> Exit {
    exit_of("list", list(options))
}

fn list(options: &ListOptions) -> Result<(), Failure> {
    let folder = ServerChoice::in_folder(options.folder.clone()).folder();
    let (mut servers, mut dead, mut broken) = (Vec::new(), Vec::new(), Vec::new());
    for name in names(&folder)? {
        match find(&folder, &name) {
            Found::Running(connection) => servers.push(connection.server),
            Found::Dead => dead.push(name),
            Found::Broken(error) => broken.push(json!({ "name": name, "error": error.to_string() })),
        }
    }
    if options.json {
        return print_json(&json!({ "schema": "rnic.list/1", "servers": servers, "dead": dead, "broken": broken }));
    }
    let mut text: String = servers.iter().map(of_server).collect();
    for name in &dead {
        text +=
            &format!("server {name}: dead; its sockets are left over, the next server of this name replaces them\n");
    }
    for server in &broken {
        text +=
            &format!("server {}: {}\n", server["name"].as_str().unwrap_or(""), server["error"].as_str().unwrap_or(""));
    }
    if text.is_empty() {
        text = format!("no server runs in {}\n", folder.display());
    }
    print(&text)
}

fn of_server(server: &ServerReport) -> String {
    let strict = if server.strict { ", strict" } else { "" };
    let mut text = format!("server {}  process {}, version {}{strict}\n", server.name, server.process, server.version);
    for adapter in &server.adapters {
        let attached = match adapter.attached {
            Some(true) => "a guest is attached",
            Some(false) => "free",
            None => "it does not answer",
        };
        text += &format!("  adapter {}  MAC {}  {attached}  {}\n", adapter.name, adapter.mac, adapter.socket.display());
        let ethernet = if adapter.ethernet_attached == Some(true) { "attached" } else { "free" };
        text += &format!("    Ethernet function  {ethernet}  {}\n", adapter.ethernet_socket.display());
    }
    text
}
