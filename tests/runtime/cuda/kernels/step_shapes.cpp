// Ops of one training step of tests/gpu/layers_task.hpp, in bf16 and by each recipe of fp8, and of a few layers of other kinds of models,
// with their bytes, and the kernels that each of them starts, as JSON for kernels.py. Bytes and FLOPs are those of shapes. Kernels are
// named by the code that starts them on a card, which here only writes their names down.

#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/model_source.hpp"
#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/cuda/ops/table.hpp"
#include "tests/gpu/layers_task.hpp"

namespace mgplan::runtime::cuda {
namespace {

/// An op, the stretch of work that it belongs to, and the kernels that it started.
struct Op {
    std::string name, range;
    double flops = 0;
    std::int64_t read = 0, written = 0;
    model::ProductSizes product;
    std::vector<std::string> kernels;
};

class Listener final : public model::OpListener {
public:
    std::vector<Op> ops;

    void on_op(const model::OpRecord& record) override {
        // Of an op in many kernels that hand on through memory: what these move.
        const bool own = record.own.bytes > 0;
        ops.push_back({std::string(record.name),
                       range(),
                       record.flops,
                       own ? static_cast<std::int64_t>(record.own.bytes) : record.bytes_read,
                       own ? 0 : record.bytes_written,
                       record.product,
                       {}});
    }
    void on_range_begin(std::string_view name, std::int64_t number) override {
        ranges_.push_back(number < 0 ? std::string(name) : fmt::format("{} {}", name, number));
    }
    void on_range_end() override { ranges_.pop_back(); }
    void on_kernel(std::string name) {
        if (!ops.empty()) ops.back().kernels.push_back(std::move(name));
    }

private:
    /// The layer's where there is one, else the innermost.
    [[nodiscard]] std::string range() const {
        for (const std::string& each : ranges_) {
            if (each.starts_with("layer ")) return each;
        }
        return ranges_.empty() ? "optimizer" : ranges_.back();
    }

    std::vector<std::string> ranges_;
};

/// "run_packs<8, AddInto<Bf16, float>>", as c++filt names what nvcc compiled, without the project's namespaces.
template <class Body>
std::string body_name() {
    std::string name = __PRETTY_FUNCTION__;
    name = name.substr(name.find("Body = ") + 7);
    name = name.substr(0, name.find("; "));
    if (name.back() == ']') name.pop_back();
    for (auto at = name.find("long int"); at != std::string::npos; at = name.find("long int")) name.erase(at + 4, 4);
    for (const std::string_view space : {"mgplan::runtime::cuda::", "mgplan::runtime::"}) {
        for (auto at = name.find(space); at != std::string::npos; at = name.find(space)) name.erase(at, space.size());
    }
    for (auto at = name.find("> >"); at != std::string::npos; at = name.find("> >")) name.erase(at + 1, 1);
    return name;
}

/// A cuDNN that takes every shape and computes nothing.
class EveryShape final : public FusedLibrary {
public:
    explicit EveryShape(Listener& listener) : listener_(listener) {}
    bool accepts(const FusedShape& /*shape*/, const FusedMemory& /*memory*/) override { return true; }
    void run(const FusedShape& shape, const FusedMemory& /*memory*/, double /*scale*/) override {
        listener_.on_kernel(shape.backward ? "cuDNN backward" : "cuDNN forward");
    }

private:
    Listener& listener_;
};

/// Writes down what is started; see launch.hpp for what a launcher offers.
class NamingLauncher {
public:
    explicit NamingLauncher(Listener& listener) : listener_(listener), library_(listener) {}
    static NamingLauncher& of(model::Device& device);

    template <class Body>
    void each(std::int64_t count, const Body& /*body*/) {
        if (count > 0) listener_.on_kernel(fmt::format("run_each<{}>", body_name<Body>()));
    }
    template <int N, class Body>
    void packs(std::int64_t count, const Body& /*body*/) {
        if (count > 0) listener_.on_kernel(fmt::format("run_packs<{}, {}>", N, body_name<Body>()));
    }
    template <class Body>
    void teams(std::int64_t count, int /*lanes*/, const Body& /*body*/) {
        if (count > 0) listener_.on_kernel(fmt::format("run_teams<{}>", body_name<Body>()));
    }
    void copy(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) { listener_.on_kernel("copy"); }
    void zero(void* /*memory*/, std::int64_t /*bytes*/) { listener_.on_kernel("zero"); }
    void gemm(const Gemm& /*gemm*/) { listener_.on_kernel("cuBLASLt"); }
    [[nodiscard]] FusedLibrary* library() { return &library_; }

private:
    Listener& listener_;
    EveryShape library_;
};

/// Addresses that lie as those of a card and are never followed.
class MadeUpAddresses final : public model::Allocator {
public:
    [[nodiscard]] std::byte* take(std::int64_t bytes, model::MemoryCategory /*category*/, std::string_view /*name*/) override {
        next_ += (bytes + 255) / 256 * 256;
        return reinterpret_cast<std::byte*>(next_ - (bytes + 255) / 256 * 256);  // NOLINT(performance-no-int-to-ptr)
    }
    void give_back(std::byte* /*memory*/, std::int64_t /*bytes*/, model::MemoryCategory /*category*/) noexcept override {}

private:
    std::int64_t next_ = 256;
};

class NamingDevice final : public model::Device {
public:
    /// `count` is what it answers when somebody reads whole numbers.
    NamingDevice(const model::KernelTraits& traits, Listener& listener, std::int32_t count)
        : Device(model::DeviceKind::cuda, traits, std::make_unique<MadeUpAddresses>(), &table()), launcher_(listener), count_(count) {
        set_listener(&listener);
    }
    [[nodiscard]] NamingLauncher& launcher() { return launcher_; }

private:
    static const model::KernelTable& table() {
        static const model::KernelTable filled = [] {
            model::KernelTable all{};
            fill_dense<NamingLauncher>(all);
            fill_flat<NamingLauncher>(all);
            fill_recurrent<NamingLauncher>(all);
            fill_router<NamingLauncher>(all);
            return all;
        }();
        return filled;
    }
    void do_write(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
    void do_read(void* to, const void* /*from*/, std::int64_t bytes) override {
        std::memset(to, 0, static_cast<std::size_t>(bytes));
        const auto numbers = static_cast<std::size_t>(bytes) / sizeof(count_);
        for (std::size_t i = 0; i < numbers; ++i) std::memcpy(static_cast<std::byte*>(to) + i * sizeof(count_), &count_, sizeof(count_));
    }
    void do_zero(void* /*memory*/, std::int64_t /*bytes*/) override {}

    NamingLauncher launcher_;
    std::int32_t count_;
};

NamingLauncher& NamingLauncher::of(model::Device& device) {
    return static_cast<NamingDevice&>(device).launcher();
}

/// The ops of a step that is not the first.
std::vector<Op> ops_of(const model::TrainingTask& task, model::Device& device, Listener& listener) {
    model::RankTrainer trainer(task, device, model::recording_world(0, 1));
    const auto tokens = [](std::int64_t /*sequence*/, std::span<std::int32_t> into) { std::fill(into.begin(), into.end(), 7); };
    (void)trainer.step(tokens, 1e-4);
    listener.ops.clear();
    (void)trainer.step(tokens, 1e-4);
    return std::move(listener.ops);
}

/// The step of tests/gpu/layers_task.hpp with another model of as many tokens a sequence.
model::TrainingTask task_of(const ModelSpec& model) {
    model::TrainingTask task = tests::layers_task();
    task.model = model;
    task.layout.split = std::make_shared<const StageSplit>(automatic_stage_split(model.layers, 0, 1, 1).value());
    return task;
}

/// A preset with other fields of its config.json: fewer layers.
ModelSpec cut_preset(const std::string& name, const nlohmann::ordered_json& fields) {
    nlohmann::ordered_json config = nlohmann::ordered_json::parse(formats::preset_text(name).value());
    config.update(fields);
    return formats::read_model_text(config.dump(), name).model;
}

/// What a router that spreads tokens evenly counts for each expert; 0 without experts.
std::int32_t copies_of_an_expert(const model::TrainingTask& task) {
    if (!task.model.moe) return 0;
    return static_cast<std::int32_t>(task.layout.micro_batch * task.batch.sequence * task.model.moe->top_k / task.model.moe->experts);
}

/// The task's ops with the kernels of a card. Throws std::runtime_error where kernels are named for others.
nlohmann::json listed(const model::TrainingTask& task, const model::KernelTraits& traits) {
    Listener of_shapes, of_names;
    model::MetaDevice meta({.keep_ops = false, .stands_for = traits});
    meta.set_listener(&of_shapes);
    const std::vector<Op> shapes = ops_of(task, meta, of_shapes);
    NamingDevice naming(traits, of_names, copies_of_an_expert(task));
    const std::vector<Op> names = ops_of(task, naming, of_names);
    nlohmann::json list = nlohmann::json::array();
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const Op& op = shapes[i];
        if (names.size() != shapes.size() || names[i].name != op.name || names[i].range != op.range)
            throw std::runtime_error(fmt::format("op {} is {} in {}, and {} where kernels are named: the two steps differ", i, op.name,
                                                 op.range, i < names.size() ? names[i].name : "none"));
        list.push_back({{"op", op.name},
                        {"range", op.range},
                        {"flops", op.flops},
                        {"read", op.read},
                        {"written", op.written},
                        {"product", op.product.m > 0},
                        {"fp8", op.product.dtype == Dtype::fp8},
                        {"kernels", names[i].kernels}});
    }
    return list;
}

/// What an 8B-shaped Llama lacks: biases and layer norms, mixtures, latent attention, Mamba's scan, the gated delta rule, and the
/// same with a decay for each channel.
std::vector<ModelSpec> other_models() {
    return {cut_preset("megatron-gpt-22b", {{"num_hidden_layers", 2}, {"max_position_embeddings", tests::kSequence}}),
            cut_preset("qwen3-30b-a3b", {{"num_hidden_layers", 2}}),
            cut_preset("deepseek-v2-lite", {{"num_hidden_layers", 2}}),
            cut_preset("nemotron-h-8b", {{"num_hidden_layers", 4}, {"hybrid_override_pattern", "M-*-"}}),
            cut_preset("qwen3-next-80b-a3b", {{"num_hidden_layers", 4}}),
            cut_preset("kimi-linear-48b-a3b", {{"num_hidden_layers", 5}})};
}

int run() {
    model::TrainingTask task = tests::layers_task();
    const model::KernelTraits hopper{model::DeviceKind::cuda, 90, true}, blackwell{model::DeviceKind::cuda, 100, true};
    const nlohmann::json in_bf16 = listed(task, hopper);
    nlohmann::json in_fp8 = nlohmann::json::array();
    task.training.precision = Precision::fp8;
    for (const auto& [recipe, name] : {std::pair(Fp8Recipe::tensorwise, "fp8-current"),
                                       {Fp8Recipe::delayed, "fp8-delayed"},
                                       {Fp8Recipe::blockwise, "fp8-blockwise"},
                                       {Fp8Recipe::mxfp8, "mxfp8"}}) {
        task.training.megatron.fp8_recipe = recipe;
        in_fp8.push_back({{"recipe", name}, {"ops", listed(task, recipe == Fp8Recipe::mxfp8 ? blackwell : hopper)}});
    }
    nlohmann::json others = nlohmann::json::array();
    for (const ModelSpec& model : other_models()) {
        others.push_back({{"model", model.name}, {"layers", model.layers}, {"ops", listed(task_of(model), hopper)}});
    }
    fmt::print("{}\n", nlohmann::json{{"model", task.model.name},
                                      {"layers", task.model.layers},
                                      {"sequence", tests::kSequence},
                                      {"micro_batch", tests::kSequences},
                                      {"ops", in_bf16},
                                      {"fp8", in_fp8},
                                      {"others", others}}
                           .dump(1));
    return 0;
}

}  // namespace
}  // namespace mgplan::runtime::cuda

int main() {
    try {
        return mgplan::runtime::cuda::run();
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
