#include "simulator/price/pass_replay.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace mgplan::simulator {
namespace {

double& seconds_of(GroupSeconds& seconds, LayerGroup group) {
    switch (group) {
        case LayerGroup::cp:
            return seconds.cp;
        case LayerGroup::ep:
        case LayerGroup::etp:
            return seconds.ep;
        case LayerGroup::tp:
        case LayerGroup::tp_cp:
            break;
    }
    return seconds.tp;
}

/// A started collective.
struct Running {
    int number = 0;
    LayerGroup group = LayerGroup::tp;
    double taken = 0;  ///< share of the speed of concurrent ops
    double begin = 0, end = 0;
};

class PassPlayer {
public:
    void start(const PieceStep& step, double seconds, double taken) {
        std::erase_if(running_, [&](const Running& each) { return each.end <= now_; });
        double& busy = busy_[static_cast<std::size_t>(step.group)];
        const double begin = std::max(now_, busy);
        busy = begin + seconds;
        running_.push_back({step.number, step.group, taken, begin, busy});
    }

    void wait(const PieceStep& step, PassSeconds& pass) {
        const auto found = std::find_if(running_.begin(), running_.end(), [&](const Running& each) { return each.number == step.number; });
        if (found == running_.end()) return;
        const double until = found->begin + step.share * (found->end - found->begin);
        if (until <= now_) return;
        seconds_of(pass.exposed[static_cast<std::size_t>(step.pass)], step.group) += until - now_;
        now_ = until;
    }

    void compute(const PieceStep& step, double seconds, PassSeconds& pass) {
        pass.compute[static_cast<std::size_t>(step.pass)] += seconds;
        for (double left = seconds; left > 0;) {
            const Running* beside = nullptr;  // the running collective with the largest overlap cost, until any collective ends or begins
            double until = std::numeric_limits<double>::infinity();
            for (const Running& each : running_) {
                if (each.end <= now_) continue;
                until = std::min(until, each.begin > now_ ? each.begin : each.end);
                if (each.begin > now_) continue;
                if (beside == nullptr || each.taken > beside->taken || (each.taken == beside->taken && each.end < beside->end))
                    beside = &each;
            }
            if (beside == nullptr) {
                now_ += left;
                return;
            }
            const double speed = 1 - beside->taken, span = until - now_, done = span * speed;
            double& exposed = seconds_of(pass.exposed[static_cast<std::size_t>(step.pass)], beside->group);
            if (left <= done) {
                exposed += left / speed - left;
                now_ += left / speed;
                return;
            }
            exposed += span - done;
            left -= done;
            now_ = until;
        }
    }

    [[nodiscard]] double now() const { return now_; }

private:
    double now_ = 0;
    std::array<double, kLayerGroups> busy_{};  ///< time at which each kind of group becomes idle
    std::vector<Running> running_;
};

}  // namespace

PassSeconds replay(const PieceSteps& steps, const StepPrice& price, const StepPrice& overlap_cost) {
    PassSeconds pass;
    PassPlayer player;
    for (const PieceStep& step : steps) {
        switch (step.kind) {
            case StepKind::op:
                player.compute(step, price(step), pass);
                break;
            case StepKind::start:
                player.start(step, price(step), overlap_cost(step));
                break;
            case StepKind::wait:
                player.wait(step, pass);
                break;
        }
    }
    pass.total = player.now();
    return pass;
}

}  // namespace mgplan::simulator
