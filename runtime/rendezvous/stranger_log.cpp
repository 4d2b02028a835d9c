#include "runtime/rendezvous/stranger_log.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

namespace mgplan::runtime {
namespace {

constexpr std::size_t kMostHosts = 8;
constexpr std::array<std::string_view, 3> kStrangerTexts{"had another MGPLAN_SECRET", "sent what is no greeting of a rank",
                                                         "connected and sent no whole greeting"};

}  // namespace

void StrangerLog::note(Kind kind, const Address& from) {
    Met& met = met_[static_cast<std::size_t>(kind)];
    ++met.count;
    const std::string text = from.text();
    std::string host = text.substr(0, text.rfind(':'));
    if (met.hosts.size() < kMostHosts && std::find(met.hosts.begin(), met.hosts.end(), host) == met.hosts.end())
        met.hosts.push_back(std::move(host));
}

std::string StrangerLog::text() const {
    std::string text;
    for (std::size_t kind = 0; kind < met_.size(); ++kind) {
        const Met& met = met_[kind];
        if (met.count == 0) continue;
        text += fmt::format("; {} {} (from {}{})", met.count, kStrangerTexts[kind], fmt::join(met.hosts, ", "),
                            met.hosts.size() == kMostHosts ? " …" : "");
    }
    return text;
}

}  // namespace mgplan::runtime
