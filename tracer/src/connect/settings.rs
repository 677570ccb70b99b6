//! Finds the resolv.conf that the processes of a pod see.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::resolv;
use crate::inventory::{Inventory, Protocol, Service};
use crate::netns::NetNs;
use crate::trace::probe::Resolver;

/// More than any resolv.conf has.
const LONGEST: u64 = 64 << 10;
/// Where ip-netns(8) keeps a namespace's own files.
const NAMED: &str = "/etc/netns";

/// The settings of the pod in this namespace: those of a process inside, those
/// that `ip netns exec` would give it, or else what Kubernetes sets by default.
/// None where not even the cluster's DNS Service is known.
pub(super) fn of_pod(
    ns: &NetNs,
    namespace: &str,
    inventory: Option<&Inventory>,
) -> Option<Resolver> {
    if let Some(found) = of_process(ns.inode) {
        return Some(found);
    }
    if let Some(name) = &ns.name {
        let path = Path::new(NAMED).join(name).join("resolv.conf");
        if let Ok(text) = fs::read_to_string(&path) {
            return Some(resolv::parse(&text, &path.display().to_string()));
        }
    }
    let dns = dns_service(inventory?)?;
    let server = dns.cluster_ips.first()?;
    let origin = format!(
        "svc/{}, as the pod's resolv.conf was not found",
        dns.full_name()
    );
    Some(resolv::assumed(*server, namespace, &origin))
}

/// The settings of a pod that uses its node's network. By default it has its
/// node's file (`dnsPolicy: ClusterFirst` means `Default` there).
pub(super) fn of_node(ns: &NetNs) -> Option<Resolver> {
    let pid = ns.pid?;
    read(pid).map(|text| resolv::parse(&text, &format!("/proc/{pid}/root/etc/resolv.conf")))
}

/// The Service that pods ask for names.
pub(super) fn dns_service(inventory: &Inventory) -> Option<&Service> {
    let serves = |s: &&Service| {
        let mut ports = s.ports.iter();
        &*s.namespace == "kube-system"
            && !s.cluster_ips.is_empty()
            && ports.any(|p| p.port == 53 && p.protocol == Protocol::Udp)
    };
    let all = || inventory.services.iter().filter(serves);
    all()
        .find(|s| &*s.name == "kube-dns")
        .or_else(|| all().next())
}

/// From a process in this namespace that has a file system of its own: one
/// that shares the machine's sees the machine's file, which is not the pod's.
fn of_process(inode: u32) -> Option<Resolver> {
    let ours = [mount_ns("self"), mount_ns("1")];
    let mut pids: Vec<i32> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    for pid in pids {
        let net = fs::metadata(format!("/proc/{pid}/ns/net")).map(|m| m.ino());
        if !matches!(net, Ok(found) if found == u64::from(inode)) {
            continue;
        }
        let mount = mount_ns(&pid.to_string());
        if mount.is_none() || ours.contains(&mount) {
            continue;
        }
        if let Some(text) = read(pid) {
            let origin = format!("/proc/{pid}/root/etc/resolv.conf");
            return Some(resolv::parse(&text, &origin));
        }
    }
    None
}

fn mount_ns(pid: &str) -> Option<u64> {
    let found = fs::metadata(format!("/proc/{pid}/ns/mnt"));
    found.ok().map(|m| m.ino())
}

fn read(pid: i32) -> Option<String> {
    let root = File::open(format!("/proc/{pid}/root")).ok()?;
    let file = open_below(&root, "etc/resolv.conf").ok()?;
    // Not a pipe that nobody writes to.
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Opens a file of a container as its processes would: symbolic links in it
/// lead to files of the container, never to the machine's (openat2(2), 5.6).
fn open_below(root: &File, path: &str) -> io::Result<File> {
    let path = CString::new(path)?;
    // SAFETY: open_how is plain integers; all zero is a valid value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: the path ends in zero, `how` is valid and of the size given.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            root.as_raw_fd(),
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call gave us this descriptor, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(fd as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::tests::sample;

    #[test]
    fn links_stay_inside_the_container() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs::create_dir_all(dir.join("etc")).unwrap();
        fs::create_dir_all(dir.join("run")).unwrap();
        fs::write(dir.join("run/resolv.conf"), "nameserver 10.96.0.10\n").unwrap();
        std::os::unix::fs::symlink("/run/resolv.conf", dir.join("etc/resolv.conf")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.join("etc/stray")).unwrap();
        let root = File::open(dir).unwrap();
        let mut text = String::new();
        let mut file = open_below(&root, "etc/resolv.conf").unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "nameserver 10.96.0.10\n");
        assert!(open_below(&root, "etc/stray").is_err());
    }

    #[test]
    fn the_dns_service_is_found_by_what_it_serves() {
        assert!(dns_service(&Inventory::default()).is_none());
        let inventory = sample();
        let found = dns_service(&inventory).unwrap();
        assert_eq!(found.full_name(), "kube-system/dns");
    }
}
