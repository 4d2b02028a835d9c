#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/graphs_request.hpp"
#include "cli/options.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/graphs/graph_slots.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/layout_report.hpp"
#include "reports/table.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/memory/iteration_inputs.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Entries of all ranks' orders together: a few seconds of counting.
constexpr std::int64_t kMostGraphEntries = std::int64_t{1} << 28;
constexpr std::size_t kMostGraphRows = 64;

/// One rank's line; bytes where there is a model.
struct RankLine {
    GraphCounts counts;
    std::optional<simulator::GraphTerms> terms;
};

/// Capture of whole layers or of parts, as a whole: the figures of the rank with the largest peak.
struct Variant {
    EnumSet<CudaGraphScope> scopes;
    std::optional<simulator::PaddingCost> padding;
    int rank = 0;
    simulator::GraphTerms terms;
    std::int64_t peak_bytes = 0;
};

struct GraphsReport {
    std::vector<RankLine> ranks;
    std::vector<Variant> variants;  ///< of models with experts
};

/// The captured layers of each chunk of a rank. All transformer layers take the same input (hidden states), so there is one shape.
std::vector<GraphedChunk> chunks_of(const GraphsRequest& request, int rank) {
    const auto chunks = static_cast<std::size_t>(request.schedule.vpp);
    if (!request.workload) {
        std::vector<GraphedChunk> list = request.per_chunk.empty() ? std::vector<GraphedChunk>(chunks, request.layers) : request.per_chunk;
        if (request.scopes.empty()) list.assign(chunks, {});
        return list;
    }
    const ModelSpec& model = request.workload->model;
    const bool prediction_in_graphs = layer_kinds(model).prediction_in_graphs;
    const auto captured = [&](std::int64_t layer) { return captured_halves(request.scopes, typed_layer(model, layer)).any(); };
    std::vector<GraphedChunk> list;
    for (int chunk = 0; chunk < request.schedule.vpp; ++chunk) {
        const StageChunk& stage = request.layout.split->chunk(rank, chunk);
        std::int64_t layers = stage.mtp > 0 && prediction_in_graphs && captured(model.layers) ? stage.mtp : 0;
        for (std::int64_t i = 0; i < stage.decoders; ++i) layers += captured(stage.first_decoder + i) ? 1 : 0;
        list.push_back({{0, layers}});
    }
    return list;
}

/// Static inputs of the graph of an iteration.
std::int64_t iteration_buffers(const GraphsRequest& request, int rank, const Schedule& schedule) {
    const simulator::IterationShare share{request.policy, schedule.microbatches(), rank == 0, rank == schedule.pp() - 1,
                                          request.workload ? &request.workload->model : nullptr};
    std::int64_t buffers = 0;
    for (const simulator::IterationInput& input : simulator::iteration_inputs(share)) buffers += input.tensors;
    return buffers;
}

std::vector<RankLine> count_ranks(const GraphsRequest& request) {
    const Schedule schedule(request.schedule);
    const std::int64_t per_rank = 2 * schedule.microbatches() * schedule.vpp();
    if (per_rank > kMostGraphEntries / schedule.pp())
        throw ConfigError(
            fmt::format("pp = {} with {} forwards and backwards a rank make more than {} entries; use fewer microbatches, chunks or ranks",
                        schedule.pp(), with_thousands(per_rank), with_thousands(kMostGraphEntries)));
    const bool whole_iteration = request.scopes.contains(CudaGraphScope::full_iteration);
    std::vector<RankLine> ranks;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
        GraphCounts counts = count_graphs(schedule, rank, chunks_of(request, rank), request.policy);
        if (whole_iteration) {
            // One graph replays everything.
            counts.forward_graphs = 1;
            counts.backward_graphs = 0;
            counts.static_buffers = iteration_buffers(request, rank, schedule);
            if (request.policy == GraphPolicy::slots) counts.slots = 0;
        }
        ranks.push_back({counts, std::nullopt});
    }
    return ranks;
}

Variant variant_of(const Workload& workload, const Layout& layout) {
    Variant variant;
    variant.scopes = layout.cuda_graphs;
    simulator::CostModel model(workload);
    for (int rank = 0; rank < static_cast<int>(layout.sizes.pp); ++rank) {
        const std::int64_t peak = model.stage_memory(layout, rank).peak_bytes();
        if (peak <= variant.peak_bytes) continue;
        variant.peak_bytes = peak;
        variant.rank = rank;
        variant.terms = model.graphs(layout, rank);
    }
    return variant;
}

/// The requested capture (or the usual partial one, if that is of whole layers), and captures of whole layers with padded experts.
std::vector<Variant> compare(const GraphsRequest& request) {
    if (request.capacity_factors.empty() || request.scopes.empty() || request.scopes.contains(CudaGraphScope::full_iteration)) return {};
    Workload dropless = *request.workload;
    dropless.model.moe->capacity_factor = 0;
    dropless.model.moe->pad_to_capacity = false;
    Layout layout = request.layout;
    if (captures_experts(layout.cuda_graphs)) layout.cuda_graphs = usual_graph_scopes(dropless.model);
    std::vector<Variant> variants{variant_of(dropless, layout)};
    for (const double factor : request.capacity_factors) {
        Workload padded = dropless;
        padded.model.moe->capacity_factor = factor;
        padded.model.moe->pad_to_capacity = true;
        padded.model.moe->dispatcher = TokenDispatcher::all_to_all;
        Layout whole = request.layout;
        whole.cuda_graphs = {CudaGraphScope::layer};
        variants.push_back(variant_of(padded, whole));
        variants.back().padding = simulator::padding_cost(dropless, whole, factor);
    }
    return variants;
}

GraphsReport make_report(const GraphsRequest& request) {
    GraphsReport report{count_ranks(request), {}};
    if (!request.workload) return report;
    simulator::CostModel model(*request.workload);
    for (RankLine& line : report.ranks) line.terms = model.graphs(request.layout, line.counts.rank);
    report.variants = compare(request);
    return report;
}

std::string_view policy_name(GraphPolicy policy) {
    return policy == GraphPolicy::megatron ? "megatron" : "slots";
}

/// Name of a kind of layer: of its mixer where it has no feed-forward.
std::string_view layer_word(const LayerKinds& kinds, const LayerKindHalves& kind) {
    if (kind.mixture) return "moe";
    if (kind.feed_forward != LayerKindHalves::kNone) return "dense";
    const Mixer& mixer = *kinds.mixers[static_cast<std::size_t>(kind.mixer)].layer.mixer;
    return std::visit([](const auto& one) -> std::string_view { return one.kKind; }, mixer);
}

/// The tensors of one layer and microbatch, as JSON objects.
Json tensors_json(const GraphsRequest& request) {
    Json list = Json::array();
    if (request.scopes.empty() || request.scopes.contains(CudaGraphScope::full_iteration)) return list;
    const LayerKinds kinds = layer_kinds(request.workload->model);
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
        const bool of_decoder = std::find(kinds.of_layer.begin(), kinds.of_layer.end(), kind) != kinds.of_layer.end();
        if (kinds.without_window[kind] != kind || (!of_decoder && !kinds.prediction_in_graphs)) continue;
        const auto layer = simulator::graphed_layer(*request.workload, request.layout, kinds, kind, request.policy);
        for (const auto& [role, tensors] : {std::pair{"static input", &layer.inputs}, {"boundary", &layer.boundary}}) {
            for (const auto& tensor : *tensors)
                list.push_back({{"layer", layer_word(kinds, kinds.kinds[kind])},
                                {"role", role},
                                {"name", tensor.name},
                                {"shape", tensor.shape},
                                {"dtype", tensor.dtype},
                                {"bytes", tensor.bytes},
                                {"source", tensor.source}});
        }
    }
    return list;
}

Json variants_json(const std::vector<Variant>& variants) {
    Json list = Json::array();
    for (const Variant& v : variants) {
        Json one{{"cuda_graphs", names_in(v.scopes)},
                 {"rank", v.rank},
                 {"static_input_bytes", v.terms.static_inputs},
                 {"boundary_bytes", v.terms.boundary_bytes},
                 {"graph_object_bytes", v.terms.objects},
                 {"resident_activation_bytes", v.terms.resident},
                 {"peak_bytes", v.peak_bytes},
                 {"capacity_factor", nullptr}};
        if (v.padding) {
            const auto& p = *v.padding;
            one["capacity_factor"] = p.capacity_factor;
            one["capacity"] = p.capacity;
            one["sent_rows"] = p.sent_rows;
            one["extra_rows"] = p.extra_rows;
            one["extra_bytes"] = p.extra_bytes;
            one["extra_flops"] = p.extra_flops;
            one["extra_traffic_bytes"] = p.extra_traffic;
        }
        list.push_back(std::move(one));
    }
    return list;
}

/// Tensors at graphs' boundaries whose bytes no model says.
Json boundary_without_bytes(EnumSet<CudaGraphScope> scopes) {
    Json list = Json::array();
    for (const auto& name : graph_boundary_tensors(scopes, false)) list.push_back({{"name", name}, {"bytes", nullptr}});
    return list;
}

/// Bytes are null where there is no model, and the boundary is `without_bytes`.
Json rank_json(const RankLine& line, const Json& without_bytes) {
    const GraphCounts& counts = line.counts;
    Json rank{{"rank", counts.rank},
              {"forward_graphs", counts.forward_graphs},
              {"backward_graphs", counts.backward_graphs},
              {"static_buffers", counts.static_buffers},
              {"slots", counts.slots},
              {"peak_live_chunks", counts.peak_live_chunks}};
    if (!line.terms) {
        rank["static_input_bytes"] = nullptr;
        rank["boundary"] = without_bytes;
        rank["boundary_bytes"] = nullptr;
        return rank;
    }
    const simulator::GraphTerms& terms = *line.terms;
    Json boundary = Json::array();
    for (const auto& tensor : terms.boundary) boundary.push_back({{"name", tensor.name}, {"bytes", tensor.bytes}});
    rank["static_input_bytes"] = terms.static_inputs;
    rank["boundary"] = std::move(boundary);
    rank["boundary_bytes"] = terms.boundary_bytes;
    rank["graph_nodes"] = terms.nodes;
    rank["graph_object_bytes"] = terms.objects;
    rank["resident_activation_bytes"] = terms.resident;
    return rank;
}

Json report_json(const GraphsRequest& request, const GraphsReport& report) {
    Json json{{"policy", policy_name(request.policy)}, {"cuda_graphs", names_in(request.scopes)}, {"ranks", Json::array()}};
    const Json without_bytes = boundary_without_bytes(request.scopes);
    for (const RankLine& line : report.ranks) json["ranks"].push_back(rank_json(line, without_bytes));
    if (!request.workload) return json;
    json["tensors"] = tensors_json(request);
    json["assumed"] = request.assumed;
    if (!report.variants.empty()) json["moe_capture"] = variants_json(report.variants);
    return json;
}

void write_csv(std::ostream& out, const GraphsReport& report) {
    const bool bytes = report.ranks.front().terms.has_value();
    out << "rank,forward_graphs,backward_graphs,static_buffers,slots,peak_live_chunks"
        << (bytes ? ",static_input_bytes,boundary_bytes,graph_object_bytes,resident_activation_bytes\n" : "\n");
    for (const auto& [counts, terms] : report.ranks) {
        out << fmt::format("{},{},{},{},{},{}", counts.rank, counts.forward_graphs, counts.backward_graphs, counts.static_buffers,
                           counts.slots, counts.peak_live_chunks);
        if (terms) out << fmt::format(",{},{},{},{}", terms->static_inputs, terms->boundary_bytes, terms->objects, terms->resident);
        out << "\n";
    }
}

std::string mebibytes(std::int64_t bytes) {
    return fmt::format("{:.2f}", static_cast<double>(bytes) / 1048576.0);
}

/// Rows of the first and the last ranks; says how many are left out.
template <class Row>
void write_ranks(std::ostream& out, reports::Table& table, const std::vector<RankLine>& ranks, const Row& row) {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ranks.size() > kMostGraphRows && i >= kMostGraphRows / 2 && i < ranks.size() - kMostGraphRows / 2) continue;
        table.add_row(row(ranks[i]));
    }
    out << table.to_text();
    if (ranks.size() > kMostGraphRows)
        out << fmt::format("... {} ranks in the middle left out (--format json or csv lists all)\n", ranks.size() - kMostGraphRows);
}

void write_bytes(std::ostream& out, const GraphsRequest& request, const GraphsReport& report) {
    out << "\nMiB of each rank, all graphs together\n";
    reports::Table bytes({{"pp rank"}, {"static inputs"}, {"boundary"}, {"graph objects"}, {"resident activations"}});
    write_ranks(out, bytes, report.ranks, [](const RankLine& line) {
        const auto& terms = *line.terms;
        return std::vector<std::string>{std::to_string(line.counts.rank), mebibytes(terms.static_inputs), mebibytes(terms.boundary_bytes),
                                        mebibytes(terms.objects), mebibytes(terms.resident)};
    });
    const Json tensors = tensors_json(request);
    if (!tensors.empty()) {
        out << "\nTensors at fixed addresses, of one layer and microbatch\n";
        reports::Table table({{"layer"}, {"role"}, {"name"}, {"shape"}, {"type"}, {"bytes"}});
        for (const Json& t : tensors)
            table.add_row({t["layer"].get<std::string>(), t["role"].get<std::string>(), t["name"].get<std::string>(), t["shape"].dump(),
                           t["dtype"].get<std::string>(), with_thousands(t["bytes"].get<std::int64_t>())});
        out << table.to_text();
    }
    if (report.variants.empty()) return;
    out << "\nExperts outside the graphs, or padded inside them (fullest rank; extra: a layer and microbatch)\n";
    reports::Table table({{"capture"}, {"capacity"}, {"graphs MiB"}, {"peak GiB"}, {"extra MiB"}, {"extra GFLOP"}, {"extra MiB sent"}});
    for (const Variant& v : report.variants) {
        const std::int64_t graphs = v.terms.static_inputs + v.terms.boundary_bytes + v.terms.objects;
        table.add_row(
            {v.padding ? "layer" : "partial", v.padding ? fmt::format("{:g} = {}", v.padding->capacity_factor, v.padding->capacity) : "-",
             mebibytes(graphs), fmt::format("{:.2f}", static_cast<double>(v.peak_bytes) / 1073741824.0),
             v.padding ? mebibytes(v.padding->extra_bytes) : "-", v.padding ? fmt::format("{:.1f}", v.padding->extra_flops / 1e9) : "-",
             v.padding ? mebibytes(v.padding->extra_traffic) : "-"});
    }
    out << table.to_text();
}

void write_table(std::ostream& out, const GraphsRequest& request, const GraphsReport& report) {
    const auto scopes = names_in(request.scopes);
    out << fmt::format("policy {}, scope {}, pp {} x vpp {}, {}\n", policy_name(request.policy),
                       scopes.empty() ? "none" : fmt::format("{}", fmt::join(scopes, " ")), request.schedule.pp, request.schedule.vpp,
                       counted(request.schedule.microbatches, "microbatch", "es"));
    out << reports::assumed_text(request.assumed) << "\n";
    reports::Table table({{"pp rank"}, {"forward graphs"}, {"backward graphs"}, {"static buffers"}, {"slots"}, {"peak live chunks"}});
    write_ranks(out, table, report.ranks, [](const RankLine& line) {
        const GraphCounts& counts = line.counts;
        return std::vector<std::string>{
            std::to_string(counts.rank),           with_thousands(counts.forward_graphs), with_thousands(counts.backward_graphs),
            with_thousands(counts.static_buffers), with_thousands(counts.slots),          with_thousands(counts.peak_live_chunks)};
    });
    if (request.workload) write_bytes(out, request, report);
}

}  // namespace

int run_graphs(const std::vector<std::string>& args, Console& console) {
    GraphsOptions given;
    Options options("graphs (PLAN | --pp P --microbatches M (--layers-per-chunk LIST | --model CFG)) [options]",
                    "Counts the CUDA graphs of each pipeline rank and the buffers at fixed addresses that they need; of a model also "
                    "their bytes.");
    declare_graphs_options(options, given);
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;
    GraphsRequest request = read_graphs_request(options, given, console);
    if (request.workload && !request.scopes.empty()) {
        if (const auto assumption = simulator::assumed_graph_node_bytes(request.workload->cluster)) request.assumed.push_back(*assumption);
    }
    options.note_idle(console, "group-size", request.schedule.vpp == 1, "vpp is 1");
    if (request.workload) {
        const ModelSpec& model = request.workload->model;
        const std::string no_experts = fmt::format("{} has no experts", model.name);
        options.note_idle(console, "ep", !model.moe && given.ep != 1, no_experts);
        options.note_idle(console, "etp", !model.moe && given.etp != request.layout.sizes.etp, no_experts);
        options.note_idle(console, "sequence-parallel", request.layout.sizes.tp == 1 && given.sequence_parallel == "on", "tp is 1");
    }
    if (!given.plan.empty()) note_assumed_architecture(request.workload->model, console);
    const GraphsReport report = make_report(request);
    options.write(console, [&](std::ostream& out) {
        switch (options.format()) {
            case Format::json:
                out << report_json(request, report).dump() << "\n";
                return;
            case Format::csv:
                return write_csv(out, report);
            case Format::table:
                return write_table(out, request, report);
        }
    });
    return kDone;
}

}  // namespace mgplan::cli
