#include "cli/run_optimizer.hpp"

#include <array>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::cli {
namespace {

constexpr std::array kScales{std::pair{"spectral", model::MuonScale::spectral}, std::pair{"unit_rms_norm", model::MuonScale::unit_rms_norm},
                             std::pair{"shape_scaling", model::MuonScale::shape_scaling}};

}  // namespace

void declare_optimizers(Options& options, OtherOptimizers& optimizers) {
    options.real("sgd-momentum", optimizers.sgd_momentum, 0, 1, "SGD: decay of the momentum");
    options.real("lion-beta1", optimizers.lion_beta1, 0, 1, "Lion: weight of the momentum in the update");
    options.real("lion-beta2", optimizers.lion_beta2, 0, 1, "Lion: decay of the momentum");
    OtherOptimizers::Muon& values = optimizers.muon;
    options.real("muon-momentum", values.momentum, 0, 1, "Muon: decay of the momentum of matrices");
    options.flag("muon-nesterov", values.nesterov, "Muon: Nesterov momentum");
    options.integer("muon-num-ns-steps", values.steps, 1, 100, "Muon: Newton-Schulz steps per matrix");
    options.choice("muon-scale-mode", values.scale, {"spectral", "unit_rms_norm", "shape_scaling"},
                   "Muon: factor of an update of R rows and C columns: sqrt(max(R, C)), sqrt(R / C), or sqrt(max(1, R / C))");
    options.real("muon-extra-scale-factor", values.extra_scale, 0, 1e6, "Muon: additional factor of an update");
    options.choice("muon-tp-mode", values.shards, {"distributed", "blockwise"},
                   "Muon: orthogonalise a tp-sharded matrix as a whole, or each rank's shard alone (Megatron-LM's default)");
    options.flag("muon-no-split-qkv", values.whole_qkv, "Muon: orthogonalise queries, keys and values together");
}

void apply_optimizers(const OtherOptimizers& values, const TrainingSpec& training, model::OptimizerOptions& optimizer) {
    const OtherOptimizers defaults;
    Problems problems;
    const auto check = [&](OptimizerKind kind, std::string_view options, bool given) {
        if (given && training.megatron.optimizer != kind)
            problems.add("{} of {} were given, and the plan's optimizer is {}; drop them, or make a plan with --optimizer {}", options,
                         to_string(kind), to_string(training.megatron.optimizer), to_string(kind));
    };
    check(OptimizerKind::sgd, "options --sgd-...", values.sgd_momentum != defaults.sgd_momentum);
    check(OptimizerKind::lion, "options --lion-...", values.lion_beta1 != defaults.lion_beta1 || values.lion_beta2 != defaults.lion_beta2);
    check(OptimizerKind::muon, "options --muon-...", values.muon != defaults.muon);
    problems.throw_if_any();
    optimizer.sgd.beta1 = values.sgd_momentum;
    optimizer.lion.beta1 = values.lion_beta1;
    optimizer.lion.beta2 = values.lion_beta2;
    model::MuonOptions& muon = optimizer.muon;
    muon.momentum = values.muon.momentum;
    muon.extra_scale = values.muon.extra_scale;
    muon.steps = static_cast<int>(values.muon.steps);
    for (const auto& [name, scale] : kScales) {
        if (values.muon.scale == name) muon.scale = scale;
    }
    if (values.muon.shards == "blockwise") muon.shards = model::MuonShards::blockwise;
    muon.nesterov = values.muon.nesterov;
    muon.split_qkv = !values.muon.whole_qkv;
}

std::string alike_text(const OtherOptimizers& values) {
    const OtherOptimizers::Muon& muon = values.muon;
    return fmt::format("{} {} {} {} {} {} {} {} {} {}", values.sgd_momentum, values.lion_beta1, values.lion_beta2, muon.momentum,
                       muon.extra_scale, muon.steps, muon.scale, muon.shards, muon.nesterov, muon.whole_qkv);
}

}  // namespace mgplan::cli
