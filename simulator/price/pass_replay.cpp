#include "simulator/price/pass_replay.hpp"

#include <algorithm>
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
    double begin = 0, end = 0;
};

class PassPlayer {
public:
    explicit PassPlayer(double overlap_cost) : speed_(1 - overlap_cost) {}

    void start(const PieceStep& step, double seconds) {
        double& busy = busy_[static_cast<std::size_t>(step.group)];
        const double begin = std::max(now_, busy);
        busy = begin + seconds;
        running_.push_back({step.number, begin, busy});
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
            // Until the first of the busy streams falls idle.
            std::size_t group = busy_.size();
            for (std::size_t i = 0; i < busy_.size(); ++i) {
                if (busy_[i] > now_ && (group == busy_.size() || busy_[i] < busy_[group])) group = i;
            }
            if (group == busy_.size()) {
                now_ += left;
                return;
            }
            const double beside = busy_[group] - now_, done = beside * speed_;
            double& exposed = seconds_of(pass.exposed[static_cast<std::size_t>(step.pass)], static_cast<LayerGroup>(group));
            if (left <= done) {
                exposed += left / speed_ - left;
                now_ += left / speed_;
                return;
            }
            exposed += beside - done;
            left -= done;
            now_ = busy_[group];
        }
    }

    [[nodiscard]] double now() const { return now_; }

private:
    double speed_;  ///< of ops beside a collective
    double now_ = 0;
    std::array<double, kLayerGroups> busy_{};  ///< when each kind of group falls idle
    std::vector<Running> running_;
};

}  // namespace

PassSeconds replay(const PieceSteps& steps, const StepPrice& price, double overlap_cost) {
    PassSeconds pass;
    PassPlayer player(overlap_cost);
    for (const PieceStep& step : steps) {
        switch (step.kind) {
            case StepKind::op:
                player.compute(step, price(step), pass);
                break;
            case StepKind::start:
                player.start(step, price(step));
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
