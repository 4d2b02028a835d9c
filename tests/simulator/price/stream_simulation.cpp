#include "tests/simulator/price/stream_simulation.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include <simgrid/s4u.hpp>

#include "tests/simulator/own_process.hpp"
#include "tests/simulator/price/written_steps.hpp"

namespace mgplan::simulator {
namespace {

namespace s4u = simgrid::s4u;

/// A collective as its stream plays it.
struct Played {
    double seconds = 0;
    std::vector<std::pair<double, s4u::SemaphorePtr>> waits;  ///< by the share that each waits for
};

/// One pass; must outlive the simulation.
class Pass {
public:
    Pass(const WrittenPass& pass, s4u::Host* host) : steps_(pass.steps), host_(host) {
        for (const PieceStep& step : steps_) {
            if (step.kind == StepKind::start) collectives_.push_back({written(step), {}});
            if (step.kind == StepKind::wait) {
                auto& waits = collectives_[static_cast<std::size_t>(step.number)].waits;
                waits.emplace_back(step.share, s4u::Semaphore::create(0));
                answers_.push_back(waits.back().second);
            }
        }
        for (Played& each : collectives_)
            std::stable_sort(each.waits.begin(), each.waits.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        for (Stream& stream : streams_) stream.given = s4u::Semaphore::create(0);
    }

    void begin() {
        for (Stream& stream : streams_) s4u::Actor::create("collectives", host_, [this, &stream] { communicate(stream); });
        s4u::Actor::create("ops", host_, [this] { compute(); });
    }

    [[nodiscard]] double end() const { return end_; }

private:
    struct Stream {
        std::deque<const Played*> queue;  ///< null: no more
        s4u::SemaphorePtr given;
    };

    void compute() {
        std::size_t answer = 0;
        for (const PieceStep& step : steps_) {
            if (step.kind == StepKind::op) {
                s4u::this_actor::execute(written(step));
            } else if (step.kind == StepKind::start) {
                give(streams_[static_cast<std::size_t>(step.group)], &collectives_[static_cast<std::size_t>(step.number)]);
            } else {
                answers_[answer++]->acquire();
            }
        }
        end_ = s4u::Engine::get_clock();
        for (Stream& stream : streams_) give(stream, nullptr);
    }

    static void give(Stream& stream, const Played* collective) {
        stream.queue.push_back(collective);
        stream.given->release();
    }

    void communicate(Stream& stream) {
        for (;;) {
            stream.given->acquire();
            const Played* collective = stream.queue.front();
            stream.queue.pop_front();
            if (collective == nullptr) return;
            if (busy_++ == 0) host_->set_pstate(1);
            double passed = 0;
            for (const auto& [share, answer] : collective->waits) {
                s4u::this_actor::sleep_for((share - passed) * collective->seconds);
                passed = share;
                answer->release();
            }
            s4u::this_actor::sleep_for((1 - passed) * collective->seconds);
            if (--busy_ == 0) host_->set_pstate(0);
        }
    }

    const PieceSteps& steps_;
    s4u::Host* host_;
    std::vector<Played> collectives_;         ///< by number
    std::vector<s4u::SemaphorePtr> answers_;  ///< of the waits, in their order
    std::array<Stream, kLayerGroups> streams_;
    int busy_ = 0;  ///< streams with a collective
    double end_ = 0;
};

std::vector<double> simulate(const std::vector<WrittenPass>& passes) {
    std::vector<std::string> words{"stream_simulation", "--cfg=surf/precision:1e-12", "--log=root.thres:warning"};
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    int count = static_cast<int>(arguments.size());
    arguments.push_back(nullptr);
    s4u::Engine engine(&count, arguments.data());
    auto* zone = s4u::create_full_zone("streams");
    std::vector<std::unique_ptr<Pass>> running;
    std::vector<s4u::Host*> hosts;
    for (const WrittenPass& pass : passes)
        hosts.push_back(zone->create_host("pass" + std::to_string(hosts.size()), std::vector<double>{1, 1 - pass.overlap_cost}));
    zone->seal();
    for (std::size_t i = 0; i < passes.size(); ++i) {
        running.push_back(std::make_unique<Pass>(passes[i], hosts[i]));
        running.back()->begin();
    }
    engine.run();
    std::vector<double> seconds;
    for (const auto& pass : running) seconds.push_back(pass->end());
    return seconds;
}

}  // namespace

std::vector<double> simulated_seconds(const std::vector<WrittenPass>& passes) {
    return in_own_process(passes.size(), [&] { return simulate(passes); });
}

}  // namespace mgplan::simulator
