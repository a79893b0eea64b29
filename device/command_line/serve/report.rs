//! What `rnic serve` says about itself: each adapter with its addresses, and what to paste into a QEMU command line.

use super::configuration::{AdapterSettings, Configuration};
use super::values::Mac;
use crate::qemu_args;
use rnic_device::server::Server;
use rnic_wire::Gid;
use std::fmt::Write;

pub fn text(configuration: &Configuration, server: &Server) -> String {
    let mut text = String::new();
    for (settings, adapter) in configuration.adapters.iter().zip(&server.adapters) {
        let name = &settings.name;
        let _ = writeln!(
            text,
            "adapter {name}  MAC {}  PCIe gen {} x{}  MTU {}",
            settings.mac(),
            settings.link.generation.0,
            settings.link.width.0,
            settings.mtu.0
        );
        let _ = writeln!(text, "  sockets {}  (RNIC)", adapter.socket().display());
        let _ = writeln!(text, "          {}  (Ethernet)", adapter.ethernet_socket().display());
        let _ = writeln!(text, "  GIDs    {}", gids(settings));
        let functions = [adapter.socket().as_path(), adapter.ethernet_socket().as_path()];
        for line in qemu_args::device(name.as_str(), &functions, 1).unwrap_or_default() {
            text += &match line.starts_with('-') {
                true => format!("  {line} "),
                false => format!("'{line}'\n"),
            };
        }
    }
    for port in &server.plain_ports {
        let (socket, mac) = (port.socket().display(), Mac(rnic_device::server::mac_of(port.name())));
        let _ = writeln!(text, "plain port {}  socket {socket}", port.name());
        let _ = writeln!(text, "  -netdev stream,id=n0,server=off,addr.type=unix,addr.path={socket}");
        let _ = writeln!(text, "  -device virtio-net-pci,netdev=n0,host_mtu=9000,mac={mac}");
    }
    text += "A machine for one of them (rnic qemu-args prints all of it, rnic guest starts one):\n ";
    qemu_args::machine("2G").iter().for_each(|word| {
        let _ = write!(text, " {word}");
    });
    text.push('\n');
    text
}

fn gids(settings: &AdapterSettings) -> String {
    if settings.gids.is_empty() {
        let link_local = Gid::link_local(settings.mac().0);
        return format!("set by the driver; the link-local one of this MAC is {}", link_local.to_ipv6());
    }
    settings.gids.iter().enumerate().map(|(index, gid)| format!("[{index}] {gid}")).collect::<Vec<_>>().join("  ")
}
