#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "importers/model_source.hpp"
#include "plan/graph_scopes.hpp"
#include "plan/graph_slots.hpp"
#include "plan/json_reader.hpp"
#include "plan/plan.hpp"
#include "plan/stage_split.hpp"
#include "plan/text.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

constexpr std::int64_t kMost = 65'536;
/// Entries of all ranks' orders together: a few seconds of counting.
constexpr std::int64_t kMostEntries = std::int64_t{1} << 28;
constexpr std::size_t kMostRows = 64;

struct GraphsOptions {
    std::vector<std::string> plan;
    std::optional<std::string> model, layers_per_chunk, scopes;
    std::optional<std::int64_t> pp, vpp, microbatches, group_size;
    std::string policy = "slots";
};

/// Everything the counts need: a schedule and, for each chunk of each rank, the layers captured.
struct GraphsRequest {
    ScheduleRequest schedule;
    std::optional<ModelSpec> model;
    std::optional<StageSplit> split;
    GraphedChunk layers;                  ///< without a model: of every chunk …
    std::vector<GraphedChunk> per_chunk;  ///< … or of each
    EnumSet<CudaGraphScope> scopes;
    GraphPolicy policy = GraphPolicy::slots;
};

std::vector<std::int64_t> read_layers(const std::string& text, Problems& problems) {
    std::vector<std::int64_t> layers;
    for (const std::string& word : split(text, ',')) {
        const std::size_t before = problems.list().size();
        layers.push_back(read_integer(problems, "--layers-per-chunk", word, 0, kMost));
        if (problems.list().size() > before) break;
    }
    if (layers.empty()) problems.add("--layers-per-chunk is empty; give a number for each of the vpp chunks, such as 4 or 4,4,3");
    return layers;
}

/// Scope words: nothing given is `layer`; `none` is the empty set.
EnumSet<CudaGraphScope> read_scopes(const std::string& text, Problems& problems) {
    EnumSet<CudaGraphScope> scopes;
    const auto words = split(text, ',');
    for (const std::string& word : words) {
        if (word == "none" && words.size() == 1) return {};
        if (const auto scope = parse_cuda_graph_scope(word)) {
            scopes.add(*scope);
            continue;
        }
        auto names = cuda_graph_scope_names();
        names.emplace_back("none");
        problems.add("--cuda-graphs = '{}' is not known; use {}", word.substr(0, 60), any_of_text(names));
        break;
    }
    if (words.empty()) problems.add("--cuda-graphs is empty; use {}", any_of_text(cuda_graph_scope_names()));
    return scopes;
}

void take_plan(const GraphsOptions& given, GraphsRequest& request, Problems& problems) {
    for (const auto& [name, present] : {std::pair{"model", given.model.has_value()},
                                        {"layers-per-chunk", given.layers_per_chunk.has_value()},
                                        {"pp", given.pp.has_value()},
                                        {"vpp", given.vpp.has_value()},
                                        {"microbatches", given.microbatches.has_value()},
                                        {"group-size", given.group_size.has_value()}}) {
        if (present) problems.add("a PLAN holds what --{} says; drop one of them", name);
    }
    problems.throw_if_any();
    const std::string& path = given.plan.front();
    const Plan plan = plan_from_json(parse_json(importers::read_text_file(path, "plan"), path), path);
    request.model = plan.model;
    request.split = *plan.layout.split;
    request.schedule.pp = static_cast<int>(plan.layout.sizes.pp);
    request.schedule.vpp = plan.layout.vpp;
    request.schedule.microbatches = plan.layout.num_microbatches;
    if (plan.layout.vpp > 1) request.schedule.group_size = plan.layout.group_size;
    if (!given.scopes && !plan.layout.cuda_graphs.empty()) request.scopes = plan.layout.cuda_graphs;
}

void take_sizes(const GraphsOptions& given, GraphsRequest& request, Problems& problems) {
    if (given.model && given.layers_per_chunk) problems.add("--model and --layers-per-chunk exclude each other; give one of them");
    if (!given.model && !given.layers_per_chunk)
        problems.add(
            "a PLAN, --model or --layers-per-chunk is missing; give the captured layers of each chunk, or the model that has them");
    if (!given.microbatches) problems.add("--microbatches is missing; give the number of microbatches of one iteration");
    request.schedule.pp = static_cast<int>(given.pp.value_or(1));
    request.schedule.vpp = static_cast<int>(given.vpp.value_or(1));
    request.schedule.microbatches = given.microbatches.value_or(1);
    request.schedule.group_size = given.group_size;
    if (given.layers_per_chunk) {
        const auto layers = read_layers(*given.layers_per_chunk, problems);
        const auto chunks = static_cast<std::size_t>(request.schedule.vpp);
        if (layers.size() == 1) {
            request.layers = {{0, layers.front()}};
        } else if (layers.size() == chunks) {
            for (const std::int64_t count : layers) request.per_chunk.push_back({{0, count}});
        } else if (!layers.empty()) {
            problems.add("--layers-per-chunk lists {} chunks, but vpp = {}; give {} numbers, or one for all chunks", layers.size(), chunks,
                         chunks);
        }
    }
    problems.throw_if_any();
    if (!given.model) return;
    request.model = importers::load_model(*given.model).model;
    request.split = automatic_stage_split(request.model->layers, request.model->mtp_layers, request.schedule.pp, request.schedule.vpp);
    if (!request.split)
        problems.add("pp·vpp = {}·{} makes more chunks than {} has layers = {}; use pp·vpp of at most {}", request.schedule.pp,
                     request.schedule.vpp, request.model->name, request.model->layers, request.model->layers);
}

GraphsRequest read_request(const GraphsOptions& given) {
    GraphsRequest request;
    Problems problems;
    request.policy = given.policy == "megatron" ? GraphPolicy::megatron : GraphPolicy::slots;
    request.scopes.add(CudaGraphScope::layer);
    if (given.scopes) request.scopes = read_scopes(*given.scopes, problems);
    if (given.plan.empty())
        take_sizes(given, request, problems);
    else
        take_plan(given, request, problems);
    if (request.model)
        check_graph_scopes(request.scopes, *request.model, problems);
    else
        check_graph_scopes(request.scopes, problems);
    problems.throw_if_any();
    return request;
}

/// The captured layers of each chunk of a rank. All transformer layers take the same input (hidden states), so there is one shape.
std::vector<GraphedChunk> chunks_of(const GraphsRequest& request, int rank) {
    const auto chunks = static_cast<std::size_t>(request.schedule.vpp);
    if (!request.model) {
        std::vector<GraphedChunk> list = request.per_chunk.empty() ? std::vector<GraphedChunk>(chunks, request.layers) : request.per_chunk;
        if (request.scopes.empty()) list.assign(chunks, {});
        return list;
    }
    const ModelSpec& model = *request.model;
    const auto captured = [&](std::int64_t layer) {
        return captures_layer(request.scopes, model.is_moe_layer(layer) ? LayerKind::moe : LayerKind::dense);
    };
    std::vector<GraphedChunk> list;
    for (int chunk = 0; chunk < request.schedule.vpp; ++chunk) {
        const StageChunk& stage = request.split->chunk(rank, chunk);
        // An MTP layer holds one decoder layer of the last kind.
        std::int64_t layers = stage.mtp > 0 && captured(model.layers - 1) ? stage.mtp : 0;
        for (std::int64_t i = 0; i < stage.decoders; ++i) layers += captured(stage.first_decoder + i) ? 1 : 0;
        list.push_back({{0, layers}});
    }
    return list;
}

std::vector<GraphCounts> count_ranks(const GraphsRequest& request) {
    const Schedule schedule(request.schedule);
    const std::int64_t per_rank = 2 * schedule.microbatches() * schedule.vpp();
    if (per_rank > kMostEntries / schedule.pp())
        throw ConfigError(
            fmt::format("pp = {} with {} forwards and backwards a rank make more than {} entries; use fewer microbatches, chunks or ranks",
                        schedule.pp(), with_thousands(per_rank), with_thousands(kMostEntries)));
    const bool whole_iteration = request.scopes.contains(CudaGraphScope::full_iteration);
    std::vector<GraphCounts> ranks;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
        GraphCounts counts = count_graphs(schedule, rank, chunks_of(request, rank), request.policy);
        if (whole_iteration) {
            // One graph replays everything; its static inputs are the tokens and labels of each microbatch, which the first
            // and the last stage read (Megatron-LM core/full_cuda_graph.py StaticBufferLoader).
            counts.forward_graphs = 1;
            counts.backward_graphs = 0;
            counts.static_buffers = rank == 0 || rank == schedule.pp() - 1 ? schedule.microbatches() : 0;
        }
        ranks.push_back(counts);
    }
    return ranks;
}

void write_json(std::ostream& out, const GraphsRequest& request, const std::vector<GraphCounts>& ranks) {
    std::string boundary;
    for (const auto& name :
         graph_boundary_tensors(request.scopes, request.model && request.model->moe && request.model->moe->shared_ffn > 0))
        boundary += fmt::format(R"({}{{"name":"{}","bytes":null}})", boundary.empty() ? "" : ",", name);
    std::string scopes;
    for (const auto& name : names_in(request.scopes)) scopes += fmt::format("{}\"{}\"", scopes.empty() ? "" : ",", name);
    out << fmt::format(R"({{"policy":"{}","cuda_graphs":[{}],"ranks":[)", request.policy == GraphPolicy::megatron ? "megatron" : "slots",
                       scopes);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const GraphCounts& counts = ranks[i];
        out << fmt::format(
            R"({}{{"rank":{},"forward_graphs":{},"backward_graphs":{},"static_buffers":{},"slots":{},"peak_live_chunks":{},"static_input_bytes":null,"boundary":[{}],"boundary_bytes":null}})",
            i > 0 ? "," : "", counts.rank, counts.forward_graphs, counts.backward_graphs, counts.static_buffers, counts.slots,
            counts.peak_live_chunks, boundary);
    }
    out << "]}\n";
}

void write_csv(std::ostream& out, const std::vector<GraphCounts>& ranks) {
    out << "rank,forward_graphs,backward_graphs,static_buffers,slots,peak_live_chunks\n";
    for (const GraphCounts& counts : ranks)
        out << fmt::format("{},{},{},{},{},{}\n", counts.rank, counts.forward_graphs, counts.backward_graphs, counts.static_buffers,
                           counts.slots, counts.peak_live_chunks);
}

void write_table(std::ostream& out, const GraphsRequest& request, const std::vector<GraphCounts>& ranks) {
    const auto scopes = names_in(request.scopes);
    out << fmt::format("policy {}, scope {}, pp {} x vpp {}, {} microbatches\n\n",
                       request.policy == GraphPolicy::megatron ? "megatron" : "slots",
                       scopes.empty() ? "none" : fmt::format("{}", fmt::join(scopes, " ")), request.schedule.pp, request.schedule.vpp,
                       with_thousands(request.schedule.microbatches));
    reports::Table table({{"pp rank"}, {"forward graphs"}, {"backward graphs"}, {"static buffers"}, {"slots"}, {"peak live chunks"}});
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (ranks.size() > kMostRows && i >= kMostRows / 2 && i < ranks.size() - kMostRows / 2) continue;
        const GraphCounts& counts = ranks[i];
        table.add_row({std::to_string(counts.rank), with_thousands(counts.forward_graphs), with_thousands(counts.backward_graphs),
                       with_thousands(counts.static_buffers), with_thousands(counts.slots), with_thousands(counts.peak_live_chunks)});
    }
    out << table.to_text();
    if (ranks.size() > kMostRows)
        out << fmt::format("... {} ranks in the middle left out (--format json or csv lists all)\n", ranks.size() - kMostRows);
}

}  // namespace

int run_graphs(const std::vector<std::string>& args, Console& console) {
    GraphsOptions given;
    Options options("graphs (PLAN | --pp P --microbatches M (--layers-per-chunk LIST | --model CFG)) [options]",
                    "Counts the CUDA graphs of each pipeline rank and the buffers at fixed addresses that they need.");
    options.positional("PLAN", given.plan, 1, "a plan written by --save-plan");
    options.group("Pipeline");
    options.integer("pp", given.pp, 1, kMost, "pipeline parallel size; without it 1");
    options.integer("vpp", given.vpp, 1, 32'767, "model chunks per pipeline rank; without it 1");
    options.integer("microbatches", given.microbatches, 1, kMaxRankOps, "microbatches of one iteration");
    options.integer("group-size", given.group_size, 1, kMaxRankOps, "microbatch group of the interleaved schedule; without it pp");
    options.group("Layers");
    options.text("layers-per-chunk", given.layers_per_chunk, "LIST", "captured layers of each chunk, or one number for all");
    options.text("model", given.model, "CFG",
                 "in place of the list: preset name, Hugging Face config.json or its folder, Megatron-LM arguments, or mgplan's JSON");
    options.text("cuda-graphs", given.scopes, "none|SCOPE[,SCOPE…]",
                 "what is captured (attn, mlp, moe, moe_router, moe_preprocess, layer, full_iteration); without it the plan's, else layer");
    options.choice("policy", given.policy, {"slots", "megatron"},
                   "slots: mgplan's own, graphs for each chunk and slot; megatron: Megatron-LM's, graphs for each microbatch");
    if (!options.parse(args, console.out)) return kDone;

    const GraphsRequest request = read_request(given);
    const std::vector<GraphCounts> ranks = count_ranks(request);
    if (request.model) console.err << "mgplan: counts only: a later version adds the bytes of static inputs and boundary tensors\n";
    options.write(console, [&](std::ostream& out) {
        switch (options.format()) {
            case Format::json:
                return write_json(out, request, ranks);
            case Format::csv:
                return write_csv(out, ranks);
            case Format::table:
                return write_table(out, request, ranks);
        }
    });
    return kDone;
}

}  // namespace mgplan::cli
