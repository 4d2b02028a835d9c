#pragma once
// Vectors of Hugging Face transformers (tests/golden/make_transformers_vectors.py): small models, their loss and their gradients.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/file_bytes.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::tests {

/// One file of the folder.
struct TransformersVector {
    std::string name;
    nlohmann::ordered_json config;
    double loss = 0;
    std::vector<std::int32_t> tokens;
    std::int64_t sequences = 0, length = 0;  ///< of inputs; each row of tokens has one more
    std::map<std::string, runtime::SafetensorsTensor> tensors;
    std::string values;

    template <class Element>
    [[nodiscard]] std::vector<Element> elements(const std::string& tensor) const {
        const runtime::SafetensorsTensor& found = tensors.at(tensor);
        std::vector<Element> list(static_cast<std::size_t>(found.elements()));
        std::memcpy(list.data(), values.data() + found.begin, list.size() * sizeof(Element));
        return list;
    }
};

inline std::filesystem::path vectors_folder() {
    return std::filesystem::path(data_folder()) / "golden/data/transformers";
}

inline TransformersVector read_vector(const std::string& name) {
    TransformersVector vector;
    vector.name = name;
    const runtime::FileBytes file((vectors_folder() / (name + ".safetensors")).string(), "vector");
    const std::string head = runtime::read_safetensors_head(file);
    const auto header = runtime::parse_safetensors(std::string_view(head).substr(8), file.size() - std::ssize(head), file.path());
    for (const auto& tensor : header.tensors) vector.tensors[tensor.name] = tensor;
    vector.values.resize(static_cast<std::size_t>(file.size() - std::ssize(head)));
    file.read(std::ssize(head), std::as_writable_bytes(std::span(vector.values)));
    vector.config = nlohmann::ordered_json::parse(header.metadata.at("config"));
    vector.loss = std::stod(header.metadata.at("loss"));
    vector.tokens = vector.elements<std::int32_t>("tokens");
    vector.sequences = vector.tensors.at("tokens").shape.at(0);
    vector.length = vector.tensors.at("tokens").shape.at(1) - 1;
    return vector;
}

inline std::vector<std::string> vector_names() {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(vectors_folder())) {
        if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

/// The weights as a repository has them: config.json and model.safetensors in a folder that goes with this.
class VectorRepository {
public:
    explicit VectorRepository(const TransformersVector& vector)
        : folder_(std::filesystem::temp_directory_path() / fmt::format("mgplan-vector-{}-{}", ::getpid(), vector.name)) {
        std::filesystem::create_directories(folder_);
        runtime::SafetensorsHeader header;
        std::string values;
        for (const auto& [name, tensor] : vector.tensors) {
            if (!name.starts_with("weight/")) continue;
            runtime::SafetensorsTensor own = tensor;
            own.name = name.substr(7);
            own.begin = std::ssize(values);
            values += vector.values.substr(static_cast<std::size_t>(tensor.begin), static_cast<std::size_t>(tensor.end - tensor.begin));
            own.end = std::ssize(values);
            header.tensors.push_back(own);
        }
        std::ofstream(folder_ / "config.json") << vector.config.dump(2);
        std::ofstream(folder_ / "model.safetensors", std::ios::binary) << runtime::safetensors_head(header) << values;
    }
    ~VectorRepository() { std::filesystem::remove_all(folder_); }
    VectorRepository(const VectorRepository&) = delete;
    VectorRepository& operator=(const VectorRepository&) = delete;
    [[nodiscard]] std::string path() const { return folder_.string(); }

private:
    std::filesystem::path folder_;
};

}  // namespace mgplan::tests
