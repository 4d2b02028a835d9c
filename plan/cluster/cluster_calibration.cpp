#include "plan/cluster/cluster_calibration.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargest = std::int64_t{1} << 50;  ///< of any size or number of bytes
constexpr double kShortest = 1e-12, kLongest = 1e7;       ///< seconds
constexpr std::size_t kMostWrong = 3;                     ///< entries of a list that are complained about

constexpr std::array<std::string_view, 3> kWays{"host_to_device", "device_to_host", "device_to_device"};
constexpr std::array<std::string_view, 5> kOperations{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"};

// Efficiencies may exceed 1 where the data sheet's figure is one of several (a bus bandwidth through the switch), never by
// much; seconds may be 0 where a device has no such cost.
constexpr std::array kParameters{
    CalibrationParameter{"gemm_efficiency", 1e-6, 2},
    CalibrationParameter{"fp8_gemm_efficiency", 1e-6, 2},
    CalibrationParameter{"gemm_k_half", 0, 1e6},
    CalibrationParameter{"multiprocessors", 1, 1e5, true},
    CalibrationParameter{"tile_m", 1, 65536, true},
    CalibrationParameter{"tile_n", 1, 65536, true},
    CalibrationParameter{"grouped_rows_half", 0, 1e6},
    CalibrationParameter{"grouped_weight_gradient", 1e-6, 4},
    CalibrationParameter{"attention_forward", 1e-6, 2},
    CalibrationParameter{"attention_backward", 1e-6, 2},
    CalibrationParameter{"attention_tail", 0, 100},
    CalibrationParameter{"memory_efficiency", 1e-6, 2},
    CalibrationParameter{"kernel_seconds", 1e-12, 10},
    CalibrationParameter{"checkpoint_host_seconds", 0, 10},
    CalibrationParameter{"host_kernel_seconds", 0, 10},
    CalibrationParameter{"issue_seconds", 0, 10},
    CalibrationParameter{"nvlink_efficiency", 1e-6, 2},
    CalibrationParameter{"small_group_loss", 0, 1},
    CalibrationParameter{"bandwidth_growth", 0, 1},
    CalibrationParameter{"nvls_efficiency", 1e-6, 4},
    CalibrationParameter{"nvls_seconds", 1e-12, 10},
    CalibrationParameter{"all_to_all_efficiency", 1e-6, 4},
    CalibrationParameter{"pcie_efficiency", 1e-6, 2},
    CalibrationParameter{"network_efficiency", 1e-6, 2},
    CalibrationParameter{"collective_seconds", 1e-12, 10},
    CalibrationParameter{"low_latency_seconds", 0, 10},
    CalibrationParameter{"low_latency_bandwidth", 0, 1},
    CalibrationParameter{"overlap_cost", 0, 1},
    CalibrationParameter{"expert_overlap_cost", 0, 1},
    CalibrationParameter{"driver_bytes", 0, 1e12, true},
    CalibrationParameter{"module_bytes", 0, 1e12, true},
    CalibrationParameter{"graph_node_bytes", 0, 1e9, true},
    CalibrationParameter{"gemm_workspace_bytes", 0, 1e12, true},
    CalibrationParameter{"engine_workspace_bytes", 0, 1e12, true},
    CalibrationParameter{"optimizer_fixed_seconds", 0, 100},
    CalibrationParameter{"iteration_fixed_seconds", 0, 100},
};

void add_timing(Json& json, const Timing& time) {
    json["seconds"] = time.seconds;
    json["spread"] = time.spread;
    json["repetitions"] = time.repetitions;
}

Json entry_of(const ProductTime& each) {
    Json json{{"m", each.m},
              {"n", each.n},
              {"k", each.k},
              {"transpose_a", each.transpose_a},
              {"transpose_b", each.transpose_b},
              {"accumulate", each.accumulate},
              {"dtype", to_string(each.dtype)}};
    add_timing(json, each.time);
    return json;
}

Json entry_of(const GroupedProductTime& each) {
    Json json{{"groups", each.groups},
              {"m", each.m},
              {"n", each.n},
              {"k", each.k},
              {"transpose_b", each.transpose_b},
              {"accumulate", each.accumulate},
              {"dtype", to_string(each.dtype)}};
    add_timing(json, each.time);
    return json;
}

Json entry_of(const AttentionTime& each) {
    Json json{{"sequence", each.sequence}, {"batch", each.batch}, {"heads", each.heads},       {"kv_heads", each.kv_heads},
              {"qk_dim", each.qk_dim},     {"v_dim", each.v_dim}, {"backward", each.backward}, {"dtype", to_string(each.dtype)},
              {"flops", each.flops}};
    add_timing(json, each.time);
    return json;
}

Json entry_of(const KernelTime& each) {
    Json json{{"op", each.op}, {"bytes", each.bytes}};
    add_timing(json, each.time);
    return json;
}

Json entry_of(const CopyTime& each) {
    Json json{{"way", each.way}, {"bytes", each.bytes}};
    add_timing(json, each.time);
    return json;
}

Json entry_of(const CollectiveTime& each) {
    Json json{{"group", each.group}, {"op", each.op}, {"ranks", each.ranks}, {"nodes", each.nodes}, {"bytes", each.bytes}};
    add_timing(json, each.time);
    json["algbw"] = each.algorithm_bandwidth();
    json["busbw"] = each.bus_bandwidth();
    return json;
}

Json entry_of(const GraphMemory& each) {
    return Json{{"kernels", each.kernels},
                {"graphs", each.graphs},
                {"bytes", each.bytes},
                {"spread", each.spread},
                {"repetitions", each.repetitions}};
}

Json entry_of(const Refit& each) {
    return Json{{"log", each.log},
                {"iterations", each.iterations},
                {"measured_seconds", each.measured_seconds},
                {"predicted_seconds", each.predicted_seconds},
                {"compute_factor", each.compute_factor},
                {"communication_factor", each.communication_factor}};
}

template <class Each>
Json entries_of(const std::vector<Each>& all) {
    Json json = Json::array();
    for (const Each& each : all) json.push_back(entry_of(each));
    return json;
}

Timing read_timing(JsonReader& reader) {
    Timing time;
    time.seconds = reader.real("seconds", kShortest, kLongest);
    time.spread = reader.real("spread", 0, 1e6);
    time.repetitions = reader.integer("repetitions", 1, kLargest);
    return time;
}

std::int64_t read_size(JsonReader& reader, const char* field) {
    return reader.integer(field, 1, kLargest);
}

Dtype read_dtype(JsonReader& reader) {
    const std::string text = reader.text("dtype");
    const auto dtype = parse_dtype(text);
    if (!text.empty() && !dtype)
        reader.problems().add("{}: dtype = '{}' is not known; use bf16, fp16, fp32, fp64 or fp8", reader.where(), text.substr(0, 60));
    return dtype.value_or(Dtype::bf16);
}

template <std::size_t N>
std::string read_word(JsonReader& reader, const char* field, const std::array<std::string_view, N>& allowed) {
    std::string text = reader.text(field);
    for (const auto word : allowed) {
        if (word == text) return text;
    }
    if (!text.empty())
        reader.problems().add("{}: {} = '{}' is not known; use {}", reader.where(), field, text.substr(0, 60), fmt::join(allowed, ", "));
    return text;
}

/// `read(reader)` gives one entry. The list must be there, and may be empty.
template <class Read>
auto read_list(JsonReader& parent, const char* field, Read read) {
    std::vector<decltype(read(parent))> entries;
    const Json* list = parent.member(field);
    if (list == nullptr) {
        parent.problems().add("{}: field '{}' is missing; give a list of measurements, [] where there are none", parent.where(), field);
        return entries;
    }
    if (!list->is_array()) {
        parent.problems().add("{}: {} is not a list; give a list of measurements", parent.where(), field);
        return entries;
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < list->size() && wrong < kMostWrong; ++i) {
        const std::size_t before = parent.problems().list().size();
        JsonReader reader((*list)[i], fmt::format("{}: {}[{}]", parent.where(), field, i), parent.problems());
        entries.push_back(read(reader));
        reader.finish();
        if (parent.problems().list().size() > before) ++wrong;
    }
    return entries;
}

ProductTime read_product(JsonReader& reader) {
    ProductTime product;
    product.m = read_size(reader, "m");
    product.n = read_size(reader, "n");
    product.k = read_size(reader, "k");
    product.transpose_a = reader.boolean("transpose_a");
    product.transpose_b = reader.boolean("transpose_b");
    product.accumulate = reader.boolean("accumulate");
    product.dtype = read_dtype(reader);
    product.time = read_timing(reader);
    return product;
}

GroupedProductTime read_grouped_product(JsonReader& reader) {
    GroupedProductTime product;
    product.groups = read_size(reader, "groups");
    product.m = read_size(reader, "m");
    product.n = read_size(reader, "n");
    product.k = read_size(reader, "k");
    product.transpose_b = reader.boolean("transpose_b");
    product.accumulate = reader.boolean("accumulate");
    product.dtype = read_dtype(reader);
    product.time = read_timing(reader);
    return product;
}

AttentionTime read_attention(JsonReader& reader) {
    AttentionTime attention;
    attention.sequence = read_size(reader, "sequence");
    attention.batch = read_size(reader, "batch");
    attention.heads = read_size(reader, "heads");
    attention.kv_heads = read_size(reader, "kv_heads");
    attention.qk_dim = read_size(reader, "qk_dim");
    attention.v_dim = read_size(reader, "v_dim");
    attention.backward = reader.boolean("backward");
    attention.dtype = read_dtype(reader);
    attention.flops = reader.real("flops", 1, 1e30);
    attention.time = read_timing(reader);
    return attention;
}

CollectiveTime read_collective(JsonReader& reader) {
    CollectiveTime each;
    each.group = reader.text("group");
    each.op = read_word(reader, "op", kOperations);
    each.ranks = reader.integer("ranks", 2, 1 << 24);
    each.bytes = read_size(reader, "bytes");
    each.time = read_timing(reader);
    each.nodes = reader.integer_or("nodes", 1, 1, 1 << 24);
    const double algorithm = reader.real("algbw", 1e-6, 1e18), bus = reader.real("busbw", 1e-6, 1e18);
    const auto differs = [](double given, double computed) { return !(std::abs(given - computed) <= 1e-6 * computed); };
    if (reader.problems().empty() && (differs(algorithm, each.algorithm_bandwidth()) || differs(bus, each.bus_bandwidth())))
        reader.problems().add("{}: algbw = {:g} and busbw = {:g} do not follow from bytes, seconds, op and ranks, which give {:g} and {:g}",
                              reader.where(), algorithm, bus, each.algorithm_bandwidth(), each.bus_bandwidth());
    return each;
}

GraphMemory read_graph(JsonReader& reader) {
    GraphMemory graph;
    graph.kernels = reader.integer("kernels", 1, 1 << 24);
    graph.graphs = reader.integer("graphs", 1, 1 << 24);
    graph.bytes = reader.integer("bytes", 0, kLargest);
    graph.spread = reader.real("spread", 0, 1e6);
    graph.repetitions = read_size(reader, "repetitions");
    return graph;
}

Refit read_refit(JsonReader& reader) {
    Refit refit;
    refit.log = reader.text("log");
    refit.iterations = read_size(reader, "iterations");
    refit.measured_seconds = reader.real("measured_seconds", kShortest, kLongest);
    refit.predicted_seconds = reader.real("predicted_seconds", kShortest, kLongest);
    refit.compute_factor = reader.real("compute_factor", 1e-3, 1e3);
    refit.communication_factor = reader.real("communication_factor", 1e-3, 1e3);
    return refit;
}

std::map<std::string, CalibratedValue> read_parameters(JsonReader& parent) {
    std::map<std::string, CalibratedValue> values;
    const Json* json = parent.member("parameters");
    if (json == nullptr) {
        parent.problems().add("{}: field 'parameters' is missing; mgplan calibrate --resume writes it", parent.where());
        return values;
    }
    JsonReader reader(*json, fmt::format("{}: parameters", parent.where()), parent.problems());
    for (const auto& parameter : kParameters) {
        const Json* entry = reader.member(parameter.name);
        if (entry == nullptr) {
            // null is what writers of JSON make of NaN.
            if (json->is_object() && json->contains(std::string(parameter.name)))
                parent.problems().add("{}: {} is null; give {{\"value\": number, \"source\": text}}, or leave it out for the default",
                                      reader.where(), parameter.name);
            continue;
        }
        JsonReader value(*entry, fmt::format("{}.{}", reader.where(), parameter.name), parent.problems());
        CalibratedValue& read = values[std::string(parameter.name)];
        read.value = parameter.whole ? static_cast<double>(value.integer("value", static_cast<std::int64_t>(parameter.low),
                                                                         static_cast<std::int64_t>(parameter.high)))
                                     : value.real("value", parameter.low, parameter.high);
        read.source = value.text("source");
        value.finish();
    }
    reader.finish();
    return values;
}

}  // namespace

double CollectiveTime::bus_bandwidth() const {
    const double n = static_cast<double>(ranks);
    const double factor = op == "send_receive" ? 1 : op == "all_reduce" ? 2 * (n - 1) / n : (n - 1) / n;
    return algorithm_bandwidth() * factor;
}

std::span<const CalibrationParameter> calibration_parameters() {
    return kParameters;
}

Json calibration_to_json(const ClusterCalibration& calibration) {
    Json parameters = Json::object();
    for (const auto& [name, each] : calibration.parameters) parameters[name] = Json{{"value", each.value}, {"source", each.source}};
    Json json{{"version", kCalibrationVersion},
              {"device", calibration.device},
              {"hardware", calibration.hardware},
              {"date", calibration.date},
              {"versions", calibration.versions},
              {"transport", calibration.transport},
              {"complete", calibration.complete},
              {"parameters", parameters},
              {"products", entries_of(calibration.products)},
              {"grouped_products", entries_of(calibration.grouped_products)},
              {"attention", entries_of(calibration.attention)},
              {"kernels", entries_of(calibration.kernels)},
              {"copies", entries_of(calibration.copies)},
              {"collectives", entries_of(calibration.collectives)},
              {"graphs", entries_of(calibration.graphs)}};
    if (calibration.launch.repetitions > 0) {
        json["launch"] = Json::object();
        add_timing(json["launch"], calibration.launch);
    }
    if (!calibration.refits.empty()) json["refits"] = entries_of(calibration.refits);
    return json;
}

ClusterCalibration calibration_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    ClusterCalibration read;
    const std::int64_t version = reader.integer("version", 0, kLargest);
    if (reader.has("version") && version != kCalibrationVersion) {
        problems.add("{}: version = {} is not {}, the one that this mgplan reads; calibrate again", where, version, kCalibrationVersion);
        problems.throw_if_any();
    }
    read.device = reader.text("device");
    if (reader.has("device") && read.device != "cpu" && read.device != "cuda" && !read.device.empty())
        problems.add("{}: device = '{}' is not known; use cpu or cuda", where, read.device.substr(0, 60));
    read.hardware = reader.text("hardware");
    read.date = reader.text("date");
    read.transport = reader.text_or("transport", "");
    read.complete = reader.boolean("complete");
    if (const Json* versions = reader.member("versions")) {
        JsonReader each(*versions, where + ": versions", problems);
        if (versions->is_object()) {
            for (const auto& item : versions->items()) read.versions[item.key()] = each.text(item.key());
        }
    }
    read.parameters = read_parameters(reader);
    read.products = read_list(reader, "products", read_product);
    // Files of before these were measured have none.
    if (reader.has("grouped_products")) read.grouped_products = read_list(reader, "grouped_products", read_grouped_product);
    if (reader.has("graphs")) read.graphs = read_list(reader, "graphs", read_graph);
    read.attention = read_list(reader, "attention", read_attention);
    read.kernels = read_list(reader, "kernels", [](JsonReader& entry) {
        return KernelTime{entry.text("op"), read_size(entry, "bytes"), read_timing(entry)};
    });
    read.copies = read_list(reader, "copies", [](JsonReader& entry) {
        return CopyTime{read_word(entry, "way", kWays), read_size(entry, "bytes"), read_timing(entry)};
    });
    read.collectives = read_list(reader, "collectives", read_collective);
    if (const Json* launch = reader.member("launch")) {
        JsonReader entry(*launch, where + ": launch", problems);
        read.launch = read_timing(entry);
        entry.finish();
    }
    if (reader.has("refits")) read.refits = read_list(reader, "refits", read_refit);
    reader.finish();
    if (problems.empty() && read.complete && read.parameters.empty() && read.refits.empty())
        problems.add("{}: parameters is empty though the calibration is complete; calibrate again", where);
    problems.throw_if_any();
    return read;
}

}  // namespace mgplan
