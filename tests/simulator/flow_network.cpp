#include "tests/simulator/flow_network.hpp"

#include <algorithm>
#include <string>

#include <simgrid/s4u.hpp>

#include "tests/simulator/own_process.hpp"

namespace mgplan::simulator {
namespace {

namespace s4u = simgrid::s4u;

/// SimGrid without its models of TCP: plain latency and shared bandwidth.
std::vector<std::string> plain_physics() {
    return {"flow_network",
            "--cfg=network/model:CM02",
            "--cfg=network/bandwidth-factor:1",
            "--cfg=network/latency-factor:1",
            "--cfg=network/weight-S:0",
            "--cfg=network/TCP-gamma:0",
            "--cfg=network/crosstraffic:0",
            "--cfg=surf/precision:1e-12",
            "--cfg=maxmin/precision:1e-12",
            "--log=root.thres:warning"};
}

/// One way through the GPUs that a collective takes: position after position, cyclic.
struct Ring {
    std::vector<int> gpus;
    int steps = 0;
    std::uint64_t bytes = 0;         ///< of one step
    std::vector<int> has, has_sent;  ///< by position: parts that it could send, and those sent
};

class Flows {
public:
    explicit Flows(const FlowPlatform& p) {
        auto* zone = s4u::create_full_zone("machine");
        const auto link = [&](const std::string& name, double bandwidth, double latency) {
            return zone->create_link(name, bandwidth)->set_latency(latency)->seal();
        };
        const int gpus = p.nodes * p.gpus_per_node, share = p.gpus_per_node / p.nics_per_node;
        std::vector<s4u::Link*> up, down, out, in;
        for (int i = 0; i < gpus; ++i) {
            hosts_.push_back(zone->create_host("gpu" + std::to_string(i), 1.0));
            up.push_back(link("up" + std::to_string(i), p.nvlink, p.nvlink_latency));
            down.push_back(link("down" + std::to_string(i), p.nvlink, 0));
        }
        for (int i = 0; i < gpus / share; ++i) {
            out.push_back(link("out" + std::to_string(i), p.network * share, p.network_latency));
            in.push_back(link("in" + std::to_string(i), p.network * share, 0));
        }
        for (int from = 0; from < gpus; ++from) {
            for (int to = 0; to < gpus; ++to) {
                if (from == to) continue;
                const bool near = from / p.gpus_per_node == to / p.gpus_per_node;
                const auto at = [&](int gpu) { return static_cast<std::size_t>(near ? gpu : gpu / share); };
                const std::vector<s4u::LinkInRoute> way{s4u::LinkInRoute(near ? up[at(from)] : out[at(from)]),
                                                        s4u::LinkInRoute(near ? down[at(to)] : in[at(to)])};
                zone->add_route(hosts_[static_cast<std::size_t>(from)]->get_netpoint(),
                                hosts_[static_cast<std::size_t>(to)]->get_netpoint(), nullptr, nullptr, way, false);
            }
        }
        zone->seal();
    }

    void add_rings(const FlowPlatform& p, const FlowGroup& group, double bytes, int rounds) {
        const auto node = [&](int gpu) { return gpu / p.gpus_per_node; };
        const auto near =
            static_cast<std::size_t>(std::count_if(group.begin(), group.end(), [&](int g) { return node(g) == node(group[0]); }));
        const std::size_t count = near == group.size() ? 1 : near;
        for (std::size_t r = 0; r < count; ++r) {
            Ring ring;
            // Ring r enters every node at its member r and leaves it by the member before that.
            for (std::size_t at = 0; at < group.size(); ++at) ring.gpus.push_back(group[at / near * near + (at + r) % near]);
            ring.steps = rounds * static_cast<int>(group.size() - 1);
            ring.bytes = static_cast<std::uint64_t>(bytes / static_cast<double>(count * group.size()));
            ring.has.assign(group.size(), 1);
            ring.has_sent.assign(group.size(), 0);
            rings_.push_back(std::move(ring));
        }
    }

    void send(int from, int to, double bytes) { start({kNoRing, 0}, from, to, static_cast<std::uint64_t>(bytes)); }

    /// Runs everything to its end; called from inside the simulation.
    void run() {
        for (std::size_t r = 0; r < rings_.size(); ++r) {
            for (std::size_t at = 0; at < rings_[r].gpus.size(); ++at) go_on(r, at);
        }
        while (!open_.empty()) {
            const auto done = s4u::Comm::wait_any(open_);
            const auto [ring, at] = senders_[static_cast<std::size_t>(done)];
            open_.erase(open_.begin() + done);
            senders_.erase(senders_.begin() + done);
            if (ring == kNoRing) continue;
            const std::size_t next = (at + 1) % rings_[ring].gpus.size();
            ++rings_[ring].has[next];
            go_on(ring, next);
        }
    }

    [[nodiscard]] s4u::Host* first_host() const { return hosts_.front(); }

private:
    struct Sender {
        std::size_t ring = 0, at = 0;
    };
    static constexpr std::size_t kNoRing = SIZE_MAX;

    void start(Sender sender, int from, int to, std::uint64_t bytes) {
        open_.push_back(s4u::Comm::sendto_async(hosts_[static_cast<std::size_t>(from)], hosts_[static_cast<std::size_t>(to)], bytes));
        senders_.push_back(sender);
    }

    void go_on(std::size_t r, std::size_t at) {
        Ring& ring = rings_[r];
        while (ring.has_sent[at] < std::min(ring.steps, ring.has[at])) {
            ++ring.has_sent[at];
            start({r, at}, ring.gpus[at], ring.gpus[(at + 1) % ring.gpus.size()], ring.bytes);
        }
    }

    std::vector<s4u::Host*> hosts_;
    std::vector<Ring> rings_;
    std::vector<s4u::CommPtr> open_;
    std::vector<Sender> senders_;
};

double simulate(const FlowPlatform& platform, const std::vector<FlowGroup>& groups, FlowPattern pattern, double bytes) {
    auto words = plain_physics();
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    s4u::Engine engine(&count, arguments.data());
    Flows flows(platform);
    double end = 0;
    s4u::Actor::create("collectives", flows.first_host(), [&] {
        for (const FlowGroup& group : groups) {
            const std::size_t n = group.size();
            if (pattern == FlowPattern::ring_once || pattern == FlowPattern::ring_twice) {
                flows.add_rings(platform, group, bytes, pattern == FlowPattern::ring_once ? 1 : 2);
            } else if (pattern == FlowPattern::shift) {
                for (std::size_t i = 0; i + 1 < n; ++i) flows.send(group[i], group[i + 1], bytes);
            } else {
                for (std::size_t i = 0; i < n; ++i) {
                    for (std::size_t hop = 1; hop < n; ++hop) flows.send(group[i], group[(i + hop) % n], bytes / static_cast<double>(n));
                }
            }
        }
        flows.run();
        end = s4u::Engine::get_clock();
    });
    engine.run();
    return end;
}

}  // namespace

double flow_seconds(const FlowPlatform& platform, const std::vector<FlowGroup>& groups, FlowPattern pattern, double bytes) {
    return in_own_process(1, [&] { return std::vector{simulate(platform, groups, pattern, bytes)}; }).front();
}

}  // namespace mgplan::simulator
