// What each piece of every preset costs, as recorded: a guard for whoever rewrites how layers are priced. A difference is a fix or
// a policy that is told with its source, never an accident.
//
//     layer_costs_golden_test --update-golden       writes layer_costs.csv anew

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"
#include "simulator/cost_model.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::simulator::layer_costs_golden_test {
namespace {

/// How a preset is trained, apart from its model.
struct Setting {
    std::string name;
    std::string cluster;
    bool needs_experts = false;
    std::function<void(Workload&, LayoutRequest&)> choose;
};

using M = RecomputeModule;

/// Sizes, precisions, engines, clusters and switches, each at least twice.
const std::vector<Setting>& settings() {
    static const std::vector<Setting> kSettings{
        {"one rank", "dgx-h100", false, [](Workload&, LayoutRequest& r) { r.engine = Engine::megatron; }},
        {"one rank of mgplan in fp32", "dgx-a100-80g", false,
         [](Workload& w, LayoutRequest&) {
             w.training.precision = Precision::fp32;
             w.training.attention = AttentionBackend::unfused;
         }},
        {"tp 8, sequence parallel, core attention again", "dgx-h100", false,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.tp = 8;
             r.micro_batch = 2;
             r.sequence_parallel = true;
             r.recompute = Recompute::selective;
             w.training.overlap_tp = true;
         }},
        {"tp 4 cp 2 in fp8", "dgx-b200", false,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.tp = 4;
             r.cp = 2;
             r.sequence_parallel = true;
             w.training.precision = Precision::fp8;
             w.training.fused_cross_entropy = true;
         }},
        {"tp 2 cp 4 of mgplan", "gb200-nvl72", false,
         [](Workload& w, LayoutRequest& r) {
             r.tp = 2;
             r.cp = 4;
             r.cp_comm_type = CpCommType::a2a;
             r.recompute = Recompute::selective;
             r.recompute_modules = {M::core_attn, M::mlp, M::layernorm};
             if (w.model.mla) r.recompute_modules.add(M::mla_up_proj);
         }},
        {"tp 2 cp 8, keys and values gathered", "dgx-a100-40g", false,
         [](Workload&, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.tp = 2;
             r.cp = 8;
             r.cp_comm_type = CpCommType::all_gather;
         }},
        {"tp 2 in fp16, local layers", "a100-pcie-80g", false,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.tp = 2;
             r.micro_batch = 4;
             w.training.precision = Precision::fp16;
             w.training.attention = AttentionBackend::unfused;
             w.training.megatron.transformer_engine = false;
             w.training.megatron.async_tp_reduce = false;
         }},
        {"ep 8", "dgx-h200", true,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.tp = 2;
             r.ep = 8;
             r.etp = 1;
             r.sequence_parallel = true;
             r.recompute = Recompute::selective;
             r.recompute_modules = {M::moe_act, M::layernorm};
             w.training.megatron.moe_permute_fusion = true;
         }},
        {"ep 16 across nodes in fp8", "dgx-h100", true,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.ep = 16;
             r.etp = 1;
             r.micro_batch = 2;
             r.recompute = Recompute::selective;
             r.recompute_modules = {M::moe, M::shared_experts};
             w.training.precision = Precision::fp8;
             w.training.megatron.fp8_recipe = Fp8Recipe::blockwise;
             w.model.moe->dispatcher = TokenDispatcher::deep_ep;
         }},
        {"ep 4 etp 2 of mgplan", "gb300-nvl72", true,
         [](Workload&, LayoutRequest& r) {
             r.tp = 2;
             r.ep = 4;
             r.etp = 2;
             r.sequence_parallel = true;
         }},
        {"ep 32 by HybridEP in mxfp8, experts fused and exchanges hidden", "gb200-nvl72", true,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.ep = 32;
             r.etp = 1;
             w.training.precision = Precision::fp8;
             w.training.megatron.fp8_recipe = Fp8Recipe::mxfp8;
             w.training.megatron.op_fuser = w.training.megatron.fp8_output_projection = w.training.megatron.fp8_attention = true;
             w.training.overlap_moe = true;
             w.model.moe->dispatcher = TokenDispatcher::hybrid_ep;
         }},
        {"tp 2 in nvfp4", "gb300-nvl72", false,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.tp = 2;
             r.sequence_parallel = true;
             w.training.precision = Precision::nvfp4;
             w.training.overlap_tp = true;
             w.training.software = Software::v25_09;
         }},
        {"ep 8 under a skew", "dgx-b300", true,
         [](Workload& w, LayoutRequest& r) {
             r.engine = Engine::megatron;
             r.ep = 8;
             r.etp = 1;
             w.routing = {RoutingKind::zipf, 0.5, {}};
         }},
    };
    return kSettings;
}

constexpr std::string_view kColumns =
    "preset,setting,piece,forward,backward,weight_gradient,recompute,exposed_forward_tp,exposed_forward_cp,exposed_forward_ep,"
    "exposed_backward_tp,exposed_backward_cp,exposed_backward_ep,exposed_recompute_tp,exposed_recompute_cp,exposed_recompute_ep,"
    "kernels_forward,kernels_backward,forward_flops,recompute_flops";

std::string numbers_of(const PieceCost& cost) {
    std::string text;
    const auto add = [&](double value) { text += fmt::format(",{:.10g}", value); };
    for (const double seconds : {cost.forward, cost.backward, cost.weight_gradient, cost.recompute}) add(seconds);
    for (const GroupSeconds& exposed : {cost.exposed_forward, cost.exposed_backward, cost.exposed_recompute}) {
        for (const double seconds : {exposed.tp, exposed.cp, exposed.ep}) add(seconds);
    }
    for (const int kernels : {cost.kernels_forward, cost.kernels_backward}) add(kernels);
    for (const double flops : {cost.forward_flops, cost.recompute_flops}) add(flops);
    return text;
}

/// A model of layers with one half each: the first mixer, the first feed-forward and the one of experts, as the engine builds them.
ModelSpec halves_of(const ModelSpec& spec, Engine engine) {
    Model model = typed_model(as_built_by(engine, spec));
    const LayerKinds kinds = layer_kinds(spec);
    model.kinds.clear();
    model.kind_of_layer.clear();
    model.prediction.reset();
    const auto add = [&](Layer half) {
        half.window = 0;
        model.kind_of_layer.push_back(static_cast<std::uint16_t>(model.kinds.size()));
        model.kinds.push_back(std::move(half));
    };
    if (spec.kinds.empty()) {
        Layer mixer = typed_layer(as_built_by(engine, spec), 0);
        mixer.feed_forward.reset();
        add(std::move(mixer));
    }
    for (const LayerHalf& half : kinds.feed_forwards) {
        if (half.mixture || spec.kinds.empty()) add(half.layer);
    }
    ModelSpec halves = spec_of_kinds(model);
    halves.order = spec.order;
    return halves;
}

/// The costs of these halves under a layout of the whole model.
std::vector<LayerCosts::Layer> costs_of_halves(Workload work, const Layout& layout) {
    work.model = halves_of(work.model, layout.engine);
    work.training.overlap_moe = false;  // hides exchanges in whole layers
    CostModel model(work);
    const LayerCosts& costs = model.costs(layout);
    const LayerKinds kinds = layer_kinds(work.model);
    std::vector<LayerCosts::Layer> halves;
    for (const std::uint16_t kind : kinds.of_layer) halves.push_back(costs.layers[kind]);
    return halves;
}

/// The rows of one preset in one setting; none where the rules forbid it.
std::vector<std::string> rows_of(const std::string& preset, const ModelSpec& spec, std::size_t number) {
    const Setting& setting = settings()[number];
    if (setting.needs_experts && !spec.moe) return {};
    Workload work;
    work.model = spec;
    work.cluster = load_cluster(setting.cluster);
    work.memory_limit = work.cluster.memory_bytes;
    work.confine_tp = false;
    work.newest_rules = false;
    LayoutRequest request;
    setting.choose(work, request);
    work.world = request.tp * request.cp * (spec.moe ? 2 * request.ep : 2);
    work.batch = {2 * request.micro_batch * work.world, std::min<std::int64_t>(spec.max_positions, 4096)};
    Layout layout;
    try {
        layout = planner::make_layout(request, work);
    } catch (const ConfigError&) {
        return {};
    }
    CostModel model(work);
    const LayerCosts& costs = model.costs(layout);
    std::vector<std::pair<std::string, const PieceCost*>> pieces;
    const LayerKinds kinds = layer_kinds(spec);
    std::vector<LayerCosts::Layer> halves;
    if (spec.kinds.empty() || spec.moe) halves = costs_of_halves(work, layout);
    PieceCost router;  // of which layers count kernels alone
    if (spec.kinds.empty()) {
        pieces.emplace_back("attention", &halves.front().cost);
        for (const LayerCosts::Layer& half : std::span(halves).subspan(1)) {
            if (!half.mixture) pieces.emplace_back("dense_mlp", &half.cost);
        }
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            if (kinds.kinds[kind].windowed)
                pieces.emplace_back(kinds.kinds[kind].mixture ? "windowed_mixture" : "windowed_dense", &costs.layers[kind].cost);
        }
    } else {
        for (std::size_t kind = 0; kind < kinds.size(); ++kind)
            pieces.emplace_back(spec.kinds[spec.kind_of_layer[static_cast<std::size_t>(kinds.first_layer[kind])]].name,
                                &costs.layers[kind].cost);
    }
    if (spec.moe) {
        router.kernels_forward = halves.back().router.forward;
        router.kernels_backward = halves.back().router.backward;
        pieces.emplace_back("experts", &halves.back().cost);
        pieces.emplace_back("router", &router);
    }
    if (spec.mtp_layers > 0) pieces.emplace_back("mtp", &costs.mtp.cost);
    pieces.emplace_back("embedding", &costs.embedding);
    pieces.emplace_back("head", &costs.head);
    std::vector<std::string> rows;
    for (const auto& [piece, cost] : pieces) rows.push_back(fmt::format("{},{},{}{}", preset, number, piece, numbers_of(*cost)));
    return rows;
}

std::string golden_path() {
    return tests::data_folder() + "/golden/data/layer_costs.csv";
}

/// Writes as the file has it, settings first.
std::string now() {
    std::string text;
    for (std::size_t i = 0; i < settings().size(); ++i)
        text += fmt::format("# setting {}: {}, {}\n", i, settings()[i].name, settings()[i].cluster);
    text += fmt::format("{}\n", kColumns);
    for (const std::string& preset : formats::preset_names()) {
        const ModelSpec spec = formats::load_model(preset).model;
        for (std::size_t number = 0; number < settings().size(); ++number) {
            for (const std::string& row : rows_of(preset, spec, number)) text += row + "\n";
        }
    }
    return text;
}

/// Rows by what they are about: preset, setting and piece.
std::map<std::string, std::vector<std::string>> rows_by_piece(const std::string& text) {
    std::map<std::string, std::vector<std::string>> rows;
    for (const std::string& line : split(text, '\n')) {
        if (line.empty() || line.front() == '#') continue;
        std::vector<std::string> cells = split(line, ',');
        if (cells.size() < 3) throw std::runtime_error("a row without a piece: " + line);
        const std::string about = cells[0] + "," + cells[1] + "," + cells[2];
        cells.erase(cells.begin(), cells.begin() + 3);
        rows[about] = std::move(cells);
    }
    return rows;
}

/// Equal to nine digits, which compilers agree on.
bool agree(const std::string& one, const std::string& other) {
    if (one == other) return true;
    char* end = nullptr;
    const double a = std::strtod(one.c_str(), &end), b = std::strtod(other.c_str(), nullptr);
    return end != one.c_str() && std::abs(a - b) <= 1e-9 * std::max(std::abs(a), std::abs(b));
}

TEST(LayerCostsGolden, EveryPieceOfEveryPresetCostsWhatItDid) {
    std::ifstream file(golden_path());
    std::stringstream recorded;
    recorded << file.rdbuf();
    const auto then = rows_by_piece(recorded.str()), today = rows_by_piece(now());
    const std::vector<std::string> columns = split(kColumns, ',');
    ASSERT_GT(then.size(), 1000U) << golden_path() << " is missing or cut off";
    int shown = 0;
    const auto differs = [&](const std::string& what) {
        if (++shown <= 20)
            ADD_FAILURE() << what << "; if that is meant, say why in docs/decisions and run this program with --update-golden";
    };
    for (const auto& [about, cells] : then) {
        const auto found = today.find(about);
        if (found == today.end()) {
            differs(about + ": is no longer there");
            continue;
        }
        ASSERT_EQ(cells.size(), found->second.size()) << about;
        for (std::size_t i = 0; i < cells.size(); ++i) {
            if (!agree(cells[i], found->second[i]))
                differs(fmt::format("{}: {} is {}, was {}", about, columns[i + 3], found->second[i], cells[i]));
        }
    }
    for (const auto& [about, cells] : today) {
        if (!then.contains(about)) differs(about + ": is new");
    }
    EXPECT_EQ(shown, 0) << "differences in all";
}

/// A setting that the rules forbid on every preset would guard nothing.
TEST(LayerCostsGolden, EverySettingIsLegalOnManyPresets) {
    for (std::size_t number = 0; number < settings().size(); ++number) {
        std::size_t presets = 0, possible = 0;
        for (const std::string& preset : formats::preset_names()) {
            const ModelSpec spec = formats::load_model(preset).model;
            possible += !settings()[number].needs_experts || spec.moe ? 1 : 0;
            presets += rows_of(preset, spec, number).empty() ? 0 : 1;
        }
        EXPECT_GE(2 * presets, possible) << settings()[number].name;  // hybrids and chosen keys refuse context parallelism
    }
}

TEST(LayerCostsGolden, ComparesToNineDigits) {
    EXPECT_TRUE(agree("0.1", "0.10000000001"));
    EXPECT_FALSE(agree("0.1", "0.100000001"));
    EXPECT_FALSE(agree("0", "1e-12"));
    EXPECT_FALSE(agree("forward", "backward"));
}

}  // namespace
}  // namespace mgplan::simulator::layer_costs_golden_test

int main(int argc, char** argv) {
    namespace test = mgplan::simulator::layer_costs_golden_test;
    testing::InitGoogleTest(&argc, argv);
    if (argc == 2 && std::string_view(argv[1]) == "--update-golden") {
        std::ofstream file(test::golden_path());
        file << test::now();
        return file.good() ? 0 : 1;
    }
    return RUN_ALL_TESTS();
}
