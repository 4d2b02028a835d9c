#include <algorithm>
#include <array>
#include <ostream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/list_writer.hpp"
#include "cli/options.hpp"
#include "cli/parameter_file.hpp"
#include "cli/plan_file.hpp"
#include "cli/workload_options.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "plan/workload.hpp"
#include "planner/constraints.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

using model::BufferLayout;
using model::BufferLayouts;

/// Rows of a table before its middle is left out.
constexpr std::size_t kMostParameterRows = 40;
/// Lists of (rank, bucket) and ranges in them that --shards writes: about 2 GB of JSON.
constexpr std::int64_t kMostShardEntries = std::int64_t{1} << 24;

struct BuffersOptions {
    std::vector<std::string> plan;
    std::optional<std::string> params, model, assume;
    std::optional<std::int64_t> tp, pp, vpp, ep, etp, chunk, edp;
    std::string dtype = "bf16";
    std::int64_t pp_rank = 0;
    std::optional<std::int64_t> dp;
    std::optional<std::string> bucket_size;
    bool no_distributed_optimizer = false;
    bool pad_buckets = false;
    bool no_grad_reduce_in_fp32 = false;
    bool disable_bucketing = false;
    bool shards = false;
};

/// The parameters to lay out, and the options of the layout.
struct BuffersRequest {
    std::string assumed_architecture;  ///< of the model, or empty
    NamedParameters named;
    model::BufferOptions options;
};

/// tp, ep and etp that the model's rank grids need: with --edp but no --ep, the ep that makes edp what it is.
void take_expert_sizes(const BuffersOptions& given, const ModelSpec& spec, std::int64_t dp, LayoutRequest& layout) {
    layout.etp = given.etp.value_or(layout.tp);
    if (!spec.moe) {
        layout.etp = layout.tp;  // accepted for dense models, and without effect
        return;
    }
    layout.ep = given.ep.value_or(1);
    if (!given.edp) return;
    const std::int64_t ranks = dp * layout.tp;
    const std::int64_t taken = *layout.etp * *given.edp;
    if (!given.ep && ranks % taken == 0) layout.ep = ranks / taken;
    if (taken * layout.ep != ranks) {
        throw ConfigError(
            fmt::format("--edp = {} is not dp·tp / (etp·ep) = {}·{} / ({}·{}); leave --edp out, or give ep and etp that make it",
                        *given.edp, dp, layout.tp, *layout.etp, layout.ep));
    }
}

/// The parameters of the pipeline rank and chunk that `given` names.
NamedParameters parameters_of_chunk(const BuffersOptions& given, const ModelSpec& model, const Layout& layout, Dtype dtype) {
    Problems problems;
    const std::int64_t pp = layout.sizes.pp, chunk = given.chunk.value_or(0);
    if (given.pp_rank >= pp) problems.add("--pp-rank = {} is not below pp = {}; use 0 to {}", given.pp_rank, pp, pp - 1);
    if (chunk >= layout.vpp) problems.add("--chunk = {} is not below vpp = {}; use 0 to {}", chunk, layout.vpp, layout.vpp - 1);
    problems.throw_if_any();
    const auto stage = stage_parameters(model, layout, static_cast<int>(given.pp_rank), layout.engine);
    std::vector<Parameter> parameters = stage[static_cast<std::size_t>(chunk)];
    std::erase_if(parameters, [](const Parameter& parameter) { return !parameter.trained; });
    NamedParameters named;
    for (const Parameter& parameter : parameters) named.names.push_back(parameter.name);
    named.parameters = model::buffer_parameters(parameters, dtype);
    return named;
}

NamedParameters parameters_of_model(const BuffersOptions& given, const ModelSpec& model, model::BufferOptions& options) {
    Workload work;
    work.model = model;
    work.confine_tp = false;
    LayoutRequest request;
    request.tp = given.tp.value_or(1);
    request.pp = given.pp.value_or(1);
    request.vpp = given.vpp.value_or(1);
    request.sequence_parallel = request.tp > 1;
    const std::int64_t per_stage = request.tp * options.dp;  // both at most 2^24
    if (per_stage > kMostRanks / request.pp)
        throw ConfigError(
            fmt::format("tp·pp·dp = {}·{}·{} makes more than {} ranks; use smaller sizes", request.tp, request.pp, options.dp, kMostRanks));
    work.world = per_stage * request.pp;
    take_expert_sizes(given, work.model, options.dp, request);
    // Parameters depend on neither; these suit every schedule and every tp.
    work.batch.global_batch = options.dp * request.pp;
    work.batch.sequence = 2 * request.tp;

    Layout layout = planner::make_layout(request, work);
    layout.engine = Engine::megatron;  // its names and its order of parameters
    options.edp = layout.edp();
    options.disable_bucketing = options.disable_bucketing || given.chunk.value_or(0) > 0;
    return parameters_of_chunk(given, work.model, layout, parse_dtype(given.dtype).value_or(Dtype::bf16));
}

BuffersRequest request_of_plan(const Options& options, const BuffersOptions& given) {
    const std::string& file = given.plan.front();
    constexpr std::array kOfPlan{"params",
                                 "model",
                                 "assume",
                                 "tp",
                                 "pp",
                                 "vpp",
                                 "ep",
                                 "etp",
                                 "dp",
                                 "edp",
                                 "dtype",
                                 "bucket-size",
                                 "no-distributed-optimizer",
                                 "pad-buckets-for-high-nccl-busbw",
                                 "no-grad-reduce-in-fp32",
                                 "disable-bucketing"};
    const Plan plan = load_asked_plan(options, file, kOfPlan);
    const TrainingSpec& training = plan.training;
    refuse_counted_only(plan.model, file + ": model");
    const bool keeps_fp32 = plan.model.hyper_connections && plan.model.hyper_connections->learned_head;
    for (const auto& [present, what] : {std::pair{training.megatron.fully_sharded.active(), "parameters sharded by FSDP"},
                                        {training.megatron.weight_shards.active(), "weights in parts (GTP)"},
                                        {training.fp8_parameters, "weights stored in fp8"},
                                        {keeps_fp32, "residual streams with maps in fp32"}}) {
        if (present)
            throw ConfigError(
                fmt::format("{}: buffers of {} are not listed; save a plan without, or list the parameters by --params", file, what));
    }
    if (given.shards && !training.distributed_optimizer)
        throw ConfigError(file + ": --shards needs the distributed optimizer, which the plan does not use; leave --shards out");
    BuffersRequest request;
    request.assumed_architecture = plan.model.assumed_architecture;
    request.named = parameters_of_chunk(given, plan.model, plan.layout, training.compute_dtype());
    request.options =
        model::buffer_options(plan.layout, training, static_cast<int>(given.pp_rank), static_cast<int>(given.chunk.value_or(0)));
    if (plan.layout.engine == Engine::megatron) {
        std::int64_t elements = 0;  // --ddp-num-buckets divides those of all chunks of the rank
        for (const auto& chunk : stage_parameters(plan.model, plan.layout, static_cast<int>(given.pp_rank), plan.layout.engine)) {
            for (const Parameter& parameter : chunk) elements += parameter.trained ? parameter.count() : 0;
        }
        model::set_buckets_of_flags(request.options, training, elements);
    }
    return request;
}

std::optional<std::int64_t> read_bucket_size(const BuffersOptions& given, std::int64_t dp, Problems& problems) {
    if (!given.bucket_size) return model::default_bucket_size(dp);
    if (*given.bucket_size == "none") return std::nullopt;
    const auto size = parse_size(*given.bucket_size);
    if (!size || *size < 1)
        problems.add("--bucket-size = '{}' is no number of elements; use 1 or more, such as 40000000 or 40M, or none",
                     given.bucket_size->substr(0, 60));
    return size;
}

BuffersRequest read_request(const Options& options_given, const BuffersOptions& given, Console& console) {
    if (!given.plan.empty()) return request_of_plan(options_given, given);
    Problems problems;
    if (given.params && given.model) problems.add("--params and --model exclude each other; give one of them");
    if (!given.params && !given.model)
        problems.add("a PLAN, --params or --model is missing; give a plan, a file that lists the parameters, or the model that has them");
    if (!given.dp) problems.add("--dp is missing; give the number of ranks that share the buffers (dp·cp)");
    if (given.shards && given.no_distributed_optimizer)
        problems.add("--shards needs the distributed optimizer, without which every rank holds everything; drop one of the two options");
    if (given.params) {
        for (const auto& [name, value] : {std::pair{"tp", given.tp},
                                          {"pp", given.pp},
                                          {"vpp", given.vpp},
                                          {"ep", given.ep},
                                          {"etp", given.etp},
                                          {"chunk", given.chunk}}) {
            if (value) problems.add("--{} belongs to --model; a --params file lists the parameters as one rank holds them", name);
        }
    }
    BuffersRequest request;
    model::BufferOptions& options = request.options;
    options.dp = given.dp.value_or(1);
    options.edp = given.edp.value_or(options.dp);
    options.bucket_size = read_bucket_size(given, options.dp, problems);
    problems.throw_if_any();

    options.distributed_optimizer = !given.no_distributed_optimizer;
    options.pad_buckets_for_high_nccl_busbw = given.pad_buckets;
    if (given.no_grad_reduce_in_fp32) options.grad_dtype.reset();
    options.pp_rank = static_cast<int>(given.pp_rank);
    options.disable_bucketing = given.disable_bucketing;
    if (given.params) {
        const GivenText* text = options_given.contents("params");
        request.named = read_parameter_list(text != nullptr ? text->text : read_text_file(*given.params, "--params"), *given.params);
    } else {
        const ModelSpec model = load_noted_model(*given.model, given.assume, console).model;
        refuse_counted_only(model, "--model: " + *given.model);
        request.assumed_architecture = model.assumed_architecture;
        request.named = parameters_of_model(given, model, options);
    }
    return request;
}

/// Lists and ranges that --shards writes are bounded by this: a shard's border cuts one parameter at most.
std::int64_t shard_entries(const BufferLayouts& layouts) {
    std::int64_t entries = 0;
    for (const BufferLayout& buffer : layouts.buffers) {
        const auto buckets = static_cast<std::int64_t>(buffer.buckets.size());
        if (buckets > kMostShardEntries / buffer.dp) return kMostShardEntries + 1;
        entries += 2 * buckets * buffer.dp + static_cast<std::int64_t>(buffer.spans.size());
    }
    return entries;
}

/// A name as JSON text.
std::string quoted(const std::string& name) {
    return nlohmann::json(name).dump();
}

void write_groups(ListWriter& writer, const std::vector<model::BucketGroup>& groups) {
    writer.text("[");
    for (std::size_t g = 0; g < groups.size(); ++g) {
        writer.text(g > 0 ? ",[" : "[");
        for (std::size_t i = 0; i < groups[g].size(); ++i)
            writer.text(fmt::format("{}[{},{}]", i > 0 ? "," : "", groups[g][i].buffer, groups[g][i].bucket));
        writer.text("]");
    }
    writer.text("]");
}

void write_buffer(ListWriter& writer, const BufferLayout& buffer, const std::vector<std::string>& names) {
    writer.text(fmt::format(R"({{"param_dtype":"{}","grad_dtype":"{}","expert":{},"dp":{},"params":[)", to_string(buffer.param_dtype),
                            to_string(buffer.grad_dtype), buffer.expert, buffer.dp));
    for (std::size_t i = 0; i < buffer.spans.size(); ++i) {
        const auto& span = buffer.spans[i];
        writer.text(fmt::format(R"({}{{"name":{},"start":{},"end":{},"bucket":{}}})", i > 0 ? "," : "",
                                names[static_cast<std::size_t>(span.parameter)], span.start, span.end, span.bucket));
    }
    writer.text("],\"buckets\":[");
    for (std::size_t i = 0; i < buffer.buckets.size(); ++i) {
        const auto& bucket = buffer.buckets[i];
        writer.text(fmt::format(R"({}{{"start":{},"end":{},"numel_unpadded":{}}})", i > 0 ? "," : "", bucket.start, bucket.end,
                                bucket.numel_unpadded));
    }
    writer.text(fmt::format(R"(],"numel":{},"numel_unpadded":{}}})", buffer.numel, buffer.numel_unpadded));
}

void write_shards(ListWriter& writer, const BufferLayout& buffer, const std::vector<std::string>& names) {
    writer.text("[");
    for (std::int64_t rank = 0; rank < buffer.dp; ++rank) {
        writer.text(rank > 0 ? ",[" : "[");
        for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
            writer.text(bucket > 0 ? ",[" : "[");
            bool first = true;
            for (const auto& range : model::shard_ranges(buffer, bucket, rank)) {
                writer.text(fmt::format(R"({}{{"param":{},"world":[{},{}],"world_in_bucket":[{},{}],"local":[{},{}],"in_param":[{},{}]}})",
                                        first ? "" : ",", names[static_cast<std::size_t>(range.parameter)], range.world.start,
                                        range.world.end, range.world_in_bucket.start, range.world_in_bucket.end, range.local.start,
                                        range.local.end, range.in_param.start, range.in_param.end));
                first = false;
            }
            writer.text("]");
        }
        writer.text("]");
    }
    writer.text("]");
}

void write_json(std::ostream& out, const BufferLayouts& layouts, const BuffersRequest& request, bool shards) {
    std::vector<std::string> names;
    names.reserve(request.named.names.size());
    for (const auto& name : request.named.names) names.push_back(quoted(name));
    const auto bucket_size = model::effective_bucket_size(request.options);
    ListWriter writer(out);
    writer.text("{");
    if (!request.assumed_architecture.empty())
        writer.text(fmt::format(R"("assumed_architecture":{},)", quoted(request.assumed_architecture)));
    writer.text(fmt::format(R"("bucket_size":{},"buffers":[)", bucket_size ? std::to_string(*bucket_size) : "null"));
    for (std::size_t b = 0; b < layouts.buffers.size(); ++b) {
        if (b > 0) writer.text(",");
        write_buffer(writer, layouts.buffers[b], names);
    }
    writer.text("],\"bucket_groups\":");
    write_groups(writer, layouts.bucket_groups);
    writer.text(",\"expert_bucket_groups\":");
    write_groups(writer, layouts.expert_bucket_groups);
    if (shards) {
        writer.text(",\"shards\":[");
        for (std::size_t b = 0; b < layouts.buffers.size(); ++b) {
            if (b > 0) writer.text(",");
            write_shards(writer, layouts.buffers[b], names);
        }
        writer.text("]");
    }
    writer.text("}\n");
}

/// A name as one CSV field.
std::string csv_field(const std::string& name) {
    if (name.find_first_of(",\"\r\n") == std::string::npos) return name;
    std::string field = "\"";
    for (const char c : name) field += c == '"' ? std::string("\"\"") : std::string(1, c);
    return field + "\"";
}

void write_csv(std::ostream& out, const BufferLayouts& layouts, const NamedParameters& named, bool shards) {
    ListWriter writer(out);
    writer.text(shards
                    ? "buffer,dp_rank,bucket,name,world_start,world_end,in_bucket_start,in_bucket_end,local_start,local_end,in_param_start,"
                      "in_param_end\n"
                    : "buffer,param_dtype,grad_dtype,expert,bucket,name,start,end\n");
    for (std::size_t b = 0; b < layouts.buffers.size(); ++b) {
        const BufferLayout& buffer = layouts.buffers[b];
        if (!shards) {
            for (const auto& span : buffer.spans)
                writer.text(fmt::format("{},{},{},{},{},{},{},{}\n", b, to_string(buffer.param_dtype), to_string(buffer.grad_dtype),
                                        buffer.expert ? 1 : 0, span.bucket,
                                        csv_field(named.names[static_cast<std::size_t>(span.parameter)]), span.start, span.end));
            continue;
        }
        for (std::int64_t rank = 0; rank < buffer.dp; ++rank) {
            for (std::size_t bucket = 0; bucket < buffer.buckets.size(); ++bucket) {
                for (const auto& range : model::shard_ranges(buffer, bucket, rank))
                    writer.text(fmt::format("{},{},{},{},{},{},{},{},{},{},{},{}\n", b, rank, bucket,
                                            csv_field(named.names[static_cast<std::size_t>(range.parameter)]), range.world.start,
                                            range.world.end, range.world_in_bucket.start, range.world_in_bucket.end, range.local.start,
                                            range.local.end, range.in_param.start, range.in_param.end));
            }
        }
    }
}

/// Calls `row` for the first and last of `count` rows; says after the table how many were left out.
template <class Row>
std::string leave_out_middle(std::size_t count, const char* what, Row row) {
    const std::size_t head = count > kMostParameterRows ? kMostParameterRows / 2 : count;
    for (std::size_t i = 0; i < head; ++i) row(i);
    if (head == count) return "";
    for (std::size_t i = count - kMostParameterRows / 2; i < count; ++i) row(i);
    return fmt::format("... {} {} in the middle left out (--format json or csv lists all)\n", count - kMostParameterRows, what);
}

/// Bytes of the whole buffer in one of its types; at most 2^60 elements of 4 bytes.
std::string size_text(const BufferLayout& buffer, Dtype dtype) {
    return human_bytes(buffer.numel * bytes_of(dtype));
}

std::string group_text(const model::BucketGroup& group) {
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(group.size(), 8); ++i)
        text += fmt::format("{}{}.{}", i > 0 ? " + " : "", group[i].buffer, group[i].bucket);
    return group.size() > 8 ? text + fmt::format(" + {} more", group.size() - 8) : text;
}

/// Groups of several buckets; all others are their own.
void write_group_lines(std::ostream& out, std::string_view title, const std::vector<model::BucketGroup>& groups) {
    if (groups.empty()) return;
    out << fmt::format("{}: {}", title, groups.size());
    std::size_t written = 0;
    for (const auto& group : groups) {
        if (group.size() > 1 && written++ < 8) out << fmt::format("; buffer.bucket {} together", group_text(group));
    }
    out << "\n";
}

void write_table(std::ostream& out, const BufferLayouts& layouts, const NamedParameters& named, const model::BufferOptions& options,
                 bool shards) {
    const auto bucket_size = model::effective_bucket_size(options);
    out << fmt::format("{}, {}, {}\npositions and sizes count elements\n", counted(std::ssize(named.names), "parameter"),
                       options.distributed_optimizer ? "distributed optimizer" : "no distributed optimizer",
                       bucket_size ? fmt::format("buckets cut from {} elements on", with_thousands(*bucket_size)) : "not cut by size");
    for (std::size_t b = 0; b < layouts.buffers.size(); ++b) {
        const BufferLayout& buffer = layouts.buffers[b];
        out << fmt::format("\nbuffer {}: {} {}parameters ({}), {} gradients ({}), shared by {}\n{}, {} of them padding at bucket ends\n\n",
                           b, to_string(buffer.param_dtype), buffer.expert ? "expert " : "", size_text(buffer, buffer.param_dtype),
                           to_string(buffer.grad_dtype), size_text(buffer, buffer.grad_dtype), counted(buffer.dp, "rank"),
                           counted(buffer.numel, "element"), with_thousands(buffer.numel - buffer.numel_unpadded));
        using reports::Align;
        reports::Table table({{"bucket"}, {"elements"}, {"padding"}, {"parameters"}, {"first parameter", Align::left}});
        const std::string rest = leave_out_middle(buffer.buckets.size(), "buckets", [&](std::size_t i) {
            const auto& bucket = buffer.buckets[i];
            const auto& first = buffer.spans[static_cast<std::size_t>(bucket.first_span)];
            const std::int64_t numel = bucket.end - bucket.start;
            table.add_row({std::to_string(i), with_thousands(numel), with_thousands(numel - bucket.numel_unpadded),
                           std::to_string(bucket.end_span - bucket.first_span), named.names[static_cast<std::size_t>(first.parameter)]});
        });
        out << table.to_text() << rest;
        if (!shards) continue;
        reports::Table ranks({{"dp rank"}, {"elements"}, {"of parameters"}, {"padding"}});
        const std::string more = leave_out_middle(static_cast<std::size_t>(buffer.dp), "ranks", [&](std::size_t rank) {
            const std::int64_t owned = model::owned_numel(buffer, static_cast<std::int64_t>(rank));
            ranks.add_row({std::to_string(rank), with_thousands(buffer.numel / buffer.dp), with_thousands(owned),
                           with_thousands(buffer.numel / buffer.dp - owned)});
        });
        out << "\nshards\n" << ranks.to_text() << more;
    }
    out << "\n";
    write_group_lines(out, "bucket groups", layouts.bucket_groups);
    write_group_lines(out, "expert bucket groups", layouts.expert_bucket_groups);
}

}  // namespace

int run_buffers(const std::vector<std::string>& args, Console& console) {
    BuffersOptions given;
    Options options("buffers (PLAN | (--params FILE | --model CFG --tp T --pp P) --dp D) [options]",
                    "Shows where each parameter lies in the flat parameter and gradient buffers of one model chunk, how these are cut "
                    "into buckets, and with --shards what each data-parallel rank owns.");
    options.positional("PLAN", given.plan, 1, "a plan written by --save-plan");
    options.group("Parameters");
    options.text(
        "params", given.params, "FILE",
        "JSON list in module order: [{\"name\", \"shape\": […], \"dtype\": \"bf16|fp16|fp32|fp8\", \"shared_embedding\", \"expert\"}]");
    options.text("model", given.model, "CFG",
                 "preset name, Hugging Face config.json or its folder, Megatron-LM arguments (their model alone), or mgplan's JSON");
    declare_assume_option(options, given.assume);
    options.integer("tp", given.tp, 1, kMostRanks, "with --model: tensor parallel size (default: 1)");
    options.integer("pp", given.pp, 1, 65536, "with --model: pipeline parallel size (default: 1)");
    options.integer("vpp", given.vpp, 1, 65536, "with --model: model chunks per pipeline rank (default: 1)");
    options.integer("ep", given.ep, 1, kMostRanks, "with --model: expert parallel size (default: what --edp says, else 1)");
    options.integer("etp", given.etp, 1, kMostRanks, "with --model: expert tensor parallel size (default: tp)");
    options.integer("chunk", given.chunk, 0, 65535,
                    "with --model: which chunk of the rank (default: the first, and no other is cut by size)");
    options.choice("dtype", given.dtype, {"bf16", "fp16", "fp32"}, "with --model: storage type of its parameters");
    options.integer("pp-rank", given.pp_rank, 0, 65535, "pipeline rank; ranks after the first do not cut by size");
    options.group("Buffers");
    options.integer("dp", given.dp, 1, model::kMaxBufferRanks, "ranks that share the dense buffers: dp·cp");
    options.integer("edp", given.edp, 1, model::kMaxBufferRanks,
                    "the same for expert buffers (default: dp, with --model dp·tp / (etp·ep))");
    options.text("bucket-size", given.bucket_size, "N|none", "elements from which on a bucket is closed (default: max(40M, 1M·dp))");
    options.flag("no-distributed-optimizer", given.no_distributed_optimizer, "no shards, so no alignment and no padding");
    options.flag("pad-buckets-for-high-nccl-busbw", given.pad_buckets, "bucket ends at multiples of 2^16, too");
    options.flag("no-grad-reduce-in-fp32", given.no_grad_reduce_in_fp32,
                 "gradients in the parameters' type (bf16 for fp8) in place of fp32");
    options.flag("disable-bucketing", given.disable_bucketing, "no cut by size, and one group of all buckets");
    options.flag("shards", given.shards, "list what each data-parallel rank owns");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;

    const BuffersRequest request = read_request(options, given, console);
    const BufferLayouts layouts = model::lay_out_buffers(request.named.parameters, request.options);
    if (given.shards && options.format() != Format::table && shard_entries(layouts) > kMostShardEntries) {
        throw ConfigError(fmt::format("--shards would list more than {} ranges; use a smaller dp or larger buckets, or the table form",
                                      with_thousands(kMostShardEntries)));
    }
    const bool dense =
        std::none_of(layouts.buffers.begin(), layouts.buffers.end(), [](const BufferLayout& buffer) { return buffer.expert; });
    options.note_idle(console, "ep", dense && given.ep != 1, "the rank holds no experts");
    options.note_idle(console, "etp", dense && given.etp != given.tp, "the rank holds no experts");
    options.note_idle(console, "edp", dense && given.edp != given.dp, "the rank holds no experts");
    options.note_idle(console, "bucket-size", request.options.disable_bucketing || request.options.pp_rank > 0,
                      "neither ranks after the first, nor later chunks, nor --disable-bucketing cut by size");
    options.note_idle(console, "pad-buckets-for-high-nccl-busbw", given.no_distributed_optimizer,
                      "without the distributed optimizer nothing is padded");
    options.note_idle(console, "dtype", given.params.has_value(), "the file says each parameter's type");
    options.write(console, [&](std::ostream& out) {
        switch (options.format()) {
            case Format::json:
                return write_json(out, layouts, request, given.shards);
            case Format::csv:
                return write_csv(out, layouts, request.named, given.shards);
            case Format::table:
                return write_table(out, layouts, request.named, request.options, given.shards);
        }
    });
    return kDone;
}

}  // namespace mgplan::cli
