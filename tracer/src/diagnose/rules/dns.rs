//! Pages of the findings about names, which `tracer probe` makes: tracing
//! records no payload, so what a resolver said is known only to who asked.

use crate::diagnose::Page;

/// In the order in which a look-up fails.
pub(in crate::diagnose) static PAGES: &[Page] = &[
    Page {
        code: "dns-resolver-unreachable",
        title: "the pod's resolver does not answer",
        meaning: "Queries to the nameserver of the pod's resolv.conf got no answer in time. The name was never the problem; the way to the DNS Service or its pods is.",
        told: "No query of the probe was answered by any nameserver that the pod is set up with.",
        ruled_out: "Any answer, even 'no such name'.",
        next: &[
            "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide",
            "tracer follow --pod POD --dst svc/kube-system/kube-dns:53 --proto udp",
        ],
    },
    Page {
        code: "dns-name-wrong",
        title: "the name does not exist",
        meaning: "The resolver answered that there is no such name, for every name that the search list makes of it: a typing error, another namespace, or a Service that does not exist.",
        told: "Every query was answered with NXDOMAIN or without addresses.",
        ruled_out: "An answer with an address.",
        next: &[
            "kubectl get services -A | grep NAME",
            "use NAME.NAMESPACE.svc.cluster.local",
        ],
    },
    Page {
        code: "dns-answer-mismatch",
        title: "the answer is not the Service's address",
        meaning: "The name was resolved to an address that is neither the Service's ClusterIP nor, for a headless Service, one of its endpoints: an old record in a cache, a stub domain, or another cluster's DNS.",
        told: "The inventory knows a Service of that name, and the answer is none of its addresses.",
        ruled_out: "The answer is the ClusterIP.",
        next: &[
            "kubectl get service -n NS NAME -o jsonpath='{.spec.clusterIPs}'",
            "kubectl -n kube-system get configmap coredns -o yaml",
        ],
    },
    Page {
        code: "dns-search-detour",
        title: "the name was found on a detour",
        meaning: "With ndots:5 a name with fewer than five dots is first tried with every entry of the search list. Each detour costs two queries. Harmless, but slow where the resolver is far or races.",
        told: "The name was answered, after other queries for it were answered with NXDOMAIN.",
        ruled_out: "The first query was answered.",
        next: &["write the name with a final dot, or set dnsConfig.options ndots in the pod"],
    },
];
