#include "runtime/rendezvous/rendezvous_options.hpp"

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::runtime {

RendezvousOptions rendezvous_options(const LaunchedRank& launched, const Environment& environment) {
    Problems problems;
    RendezvousOptions options;
    options.rank = launched.rank;
    options.size = launched.size;
    const auto text = [&](const char* name) { return environment(name).value_or(""); };
    options.host = text("MASTER_ADDR");
    options.interface = text("MGPLAN_INTERFACE");
    options.secret = text("MGPLAN_SECRET");
    if (options.host.empty())
        problems.add("MASTER_ADDR is not set, and rank {} does not know where rank 0 is; set it on all ranks", launched.rank);
    constexpr std::int64_t kMostPort = 65535;
    if (const auto own = environment("MGPLAN_PORT")) {
        options.port = static_cast<int>(read_integer(problems, "MGPLAN_PORT", *own, 1, kMostPort));
    } else if (const auto port = environment("MASTER_PORT")) {
        options.port = static_cast<int>(read_integer(problems, "MASTER_PORT", *port, 1, kMostPort));
        if (text("TORCHELASTIC_USE_AGENT_STORE") == "True") options.port += options.port < kMostPort ? 1 : -1;
    } else {
        problems.add("neither MASTER_PORT nor MGPLAN_PORT is set; set one on all ranks to a free port of rank 0's machine, such as 29500");
    }
    if (options.secret.size() < kLeastSecretBytes || options.secret.size() > kMostSecretBytes) {
        problems.add(
            "MGPLAN_SECRET {}; ranks that meet over TCP know each other by it: set it on all ranks to {} to {} bytes that nobody guesses, "
            "such as export MGPLAN_SECRET=$(od -An -N16 -tx1 /dev/urandom | tr -d ' ')",
            options.secret.empty() ? std::string("is not set") : "has " + std::to_string(options.secret.size()) + " bytes",
            kLeastSecretBytes, kMostSecretBytes);
    }
    problems.throw_if_any();
    return options;
}

}  // namespace mgplan::runtime
