"""What was learned leaves the executed graph at any depth; what shapes are computed from stays."""

import numpy as np
import onnx
import pytest
from google.protobuf.json_format import MessageToDict
from onnx import TensorProto, helper, numpy_helper

from common.onnx_graph.executed import load_executed_graph, without_weights
from common.onnx_graph.reading.naming import expand, rename_saved
from common.onnx_graph.reading.stripping import strip_weights
from common.runtime.sessions.session import SessionSettings, create_session
from models.__main__ import BUILDERS
from tests.support.models.body_models import body, node
from tests.support.models.onnx_models import model
from tests.support.models.quantized_models import FORMS, quantize

SECRET = np.frombuffer(b"SECRET__", np.float32)  # 3.3e17 and 7.1e31
FLOATS = [float(number) for number in SECRET]


def messages(message):
    """Yield every message in a message, as a dictionary with the field names of JSON."""
    yield message
    for value in message.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                yield from messages(part)


def leaks(content):
    """Return what holds more than a name, a type, a shape and the integers of a shape."""
    found = []
    for message in messages(MessageToDict(onnx.load_from_string(content))):
        is_shape = message.get("dataType") == TensorProto.INT64 and len(message.get("dims", [])) <= 1
        kept = {"rawData", "int64Data"} if is_shape else set()
        payloads = {name for name in message if name.endswith("Data") and name not in kept}
        found += sorted(payloads | message.keys() & {"docString", "metadataProps", "functions", "dataLocation"})
        found += [f"floats of {message['name']}" for number in message.get("floats", []) if number]
    return found


def executed(source, folder, level="all"):
    """Return the path of the graph that the runtime makes of a model."""
    path = folder / "executed.onnx"
    create_session(source, SessionSettings(1, optimization=level), optimized=path)
    return path


def test_the_oracle_sees_weights():
    assert "rawData" in leaks(BUILDERS["tiny-cnn"]().SerializeToString())


def is_large(name):
    return not name.startswith("tiny-")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] if is_large(name) else []) for name in BUILDERS]
)
@pytest.mark.parametrize("level", ["disable", "all"])
def test_no_built_model_leaves_a_weight_and_stage_03_reads_the_same_graph(tmp_path, name, level):
    source, _ = expand(BUILDERS[name]())
    path = executed(source.SerializeToString(), tmp_path, level)
    stripped, _ = rename_saved(without_weights(path, []))
    assert leaks(stripped) == []
    (tmp_path / "stripped.onnx").write_bytes(stripped)
    path.write_bytes(rename_saved(path.read_bytes())[0])
    assert load_executed_graph(tmp_path / "stripped.onnx", {}) == load_executed_graph(path, {})


@pytest.mark.parametrize("form", FORMS)
def test_scales_and_integer_weights_of_a_quantized_model_are_weights(tmp_path, form):
    onnx.save(BUILDERS["tiny-mlp"](), tmp_path / "m.onnx")
    quantized = quantize(tmp_path / "m.onnx", form, tmp_path / "q.onnx", dimensions={"batch": 3})
    assert leaks(without_weights(executed(quantized, tmp_path), [])) == []


def test_payloads_outside_of_the_main_graphs_tensors():
    """A body, attributes, sparse tensors, texts, and a field that ONNX does not know."""
    small, tree = numpy_helper.from_array(SECRET, "w"), {"nodes_values": FLOATS, "nodes_modes": ["SECRET__"]}
    sparse = helper.make_sparse_tensor(small, numpy_helper.from_array(np.array([2, 3]), "at"), [5])
    inner = body([helper.make_node("Constant", [], ["c"], value_floats=FLOATS)], [], [], {"v": SECRET})
    nodes = [
        helper.make_node("Constant", [], ["a"], value=small),
        helper.make_node("Constant", [], ["b"], sparse_value=sparse),
        helper.make_node("Constant", [], ["d"], value_float=FLOATS[0]),
        helper.make_node("Constant", [], ["e"], value_string="SECRET__"),
        helper.make_node("TreeEnsembleRegressor", ["x"], ["t"], domain="ai.onnx.ml", doc_string="SECRET__", **tree),
        helper.make_node("EPContext", ["x"], ["u"], domain="com.microsoft", ep_cache_context="SECRET__" * 200),
        helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner),
        node("Relu", "x", "z", "relu"),
    ]
    proto = model(nodes, {"x": (3,)}, {"z": (3,)}, domains=["ai.onnx.ml", "com.microsoft"])
    proto.graph.sparse_initializer.append(sparse)
    helper.set_model_props(proto, {"about": "SECRET__"})
    unknown = proto.SerializeToString() + bytes([0xFA, 0x3F, 8]) + b"SECRET__"  # field 1023
    proto = onnx.load_from_string(unknown)
    assert proto.SerializeToString().count(SECRET.tobytes()) > 8 and leaks(proto.SerializeToString())
    strip_weights(proto)
    left = proto.SerializeToString()
    assert leaks(left) == []
    assert all(number.tobytes() not in left for number in SECRET)
    assert len(proto.graph.node[4].attribute[0].floats or proto.graph.node[4].attribute[1].floats) == 2


# Every attribute of every version of the operators of ai.onnx.ml.
STRUCTURE = {
    "CastMap": "cast_to map_form max_map",
    "FeatureVectorizer": "inputdimensions",
    "LinearClassifier": "multi_class post_transform",
    "LinearRegressor": "post_transform targets",
    "Normalizer": "norm",
    "OneHotEncoder": "zeros",
    "SVMClassifier": "kernel_type post_transform",
    "SVMRegressor": "kernel_type n_supports one_class post_transform",
    "TreeEnsemble": "aggregate_function n_targets post_transform",
    "TreeEnsembleClassifier": "post_transform",
    "TreeEnsembleRegressor": "aggregate_function n_targets post_transform",
}
_TREE = (
    "nodes_treeids nodes_nodeids nodes_featureids nodes_values nodes_hitrates nodes_modes nodes_truenodeids "
    "nodes_falsenodeids nodes_missing_value_tracks_true base_values base_values_as_tensor nodes_values_as_tensor "
    "nodes_hitrates_as_tensor "
)
CONTENT = {
    "ArrayFeatureExtractor": "",
    "Binarizer": "threshold",
    "CastMap": "",
    "CategoryMapper": "cats_int64s cats_strings default_int64 default_string",
    "DictVectorizer": "int64_vocabulary string_vocabulary",
    "FeatureVectorizer": "",
    "Imputer": "imputed_value_floats imputed_value_int64s replaced_value_float replaced_value_int64",
    "LabelEncoder": "classes_strings default_float default_int64 default_string default_tensor keys_floats keys_int64s "
    "keys_strings keys_tensor values_floats values_int64s values_strings values_tensor",
    "LinearClassifier": "classlabels_ints classlabels_strings coefficients intercepts",
    "LinearRegressor": "coefficients intercepts",
    "Normalizer": "",
    "OneHotEncoder": "cats_int64s cats_strings",
    "SVMClassifier": "classlabels_ints classlabels_strings coefficients kernel_params prob_a prob_b rho "
    "support_vectors vectors_per_class",
    "SVMRegressor": "coefficients kernel_params rho support_vectors",
    "Scaler": "offset scale",
    "TreeEnsemble": "leaf_targetids leaf_weights membership_values nodes_falseleafs nodes_falsenodeids "
    "nodes_featureids nodes_hitrates nodes_missing_value_tracks_true nodes_modes nodes_splits nodes_trueleafs "
    "nodes_truenodeids tree_roots",
    "TreeEnsembleClassifier": _TREE + "class_ids class_nodeids class_treeids class_weights class_weights_as_tensor "
    "classlabels_int64s classlabels_strings",
    "TreeEnsembleRegressor": _TREE + "target_ids target_nodeids target_treeids target_weights target_weights_as_tensor",
    "ZipMap": "classlabels_int64s classlabels_strings",
}
TEXT, NUMBER, LENGTH = b"SECRET__", 7919, 3
ATTRIBUTE_VALUES = {
    "FLOAT": float(NUMBER),
    "INT": NUMBER,
    "STRING": TEXT,
    "FLOATS": [float(NUMBER)] * LENGTH,
    "INTS": [NUMBER] * LENGTH,
    "STRINGS": [TEXT] * LENGTH,
    "TENSOR": numpy_helper.from_array(np.full(LENGTH, NUMBER, np.int64)),
}


def schema_attributes():
    """Every attribute of ai.onnx.ml with its type, by operator."""
    kinds = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "ai.onnx.ml":
            own = kinds.setdefault(schema.name, {})
            own |= {name: str(about.type).rpartition(".")[2] for name, about in schema.attributes.items()}
    return kinds


def test_every_attribute_of_classical_machine_learning_is_content_or_structure():
    """A release of ONNX with a new operator or attribute fails here until it is in one of the lists."""
    listed = {name: {*words.split(), *STRUCTURE.get(name, "").split()} for name, words in CONTENT.items()}
    assert listed == {name: {*kinds} for name, kinds in schema_attributes().items()}
    assert not any({*CONTENT[name].split()} & {*words.split()} for name, words in STRUCTURE.items())


@pytest.mark.parametrize("op_type", CONTENT)
def test_content_goes_and_structure_and_lengths_stay(op_type):
    kinds = schema_attributes()[op_type]
    given = {name: ATTRIBUTE_VALUES[kind] for name, kind in kinds.items()}
    proto = model([helper.make_node(op_type, ["x"], ["y"], domain="ai.onnx.ml", **given)], {"x": (3,)}, {"y": None})
    strip_weights(proto)
    left = {attribute.name: helper.get_attribute_value(attribute) for attribute in proto.graph.node[0].attribute}
    assert left.keys() == given.keys()
    assert {name: left[name] for name in STRUCTURE.get(op_type, "").split()} == {
        name: given[name] for name in STRUCTURE.get(op_type, "").split()
    }
    for name in CONTENT[op_type].split():
        if kinds[name] == "TENSOR":
            assert (left[name].data_type, [*left[name].dims]) == (TensorProto.INT64, [LENGTH])
            assert not left[name].raw_data
        elif kinds[name] in ("FLOATS", "INTS", "STRINGS"):
            assert [*left[name]] in ([0] * LENGTH, [b""] * LENGTH)
        else:
            assert left[name] in (0, b"")


@pytest.mark.parametrize(
    ("op_type", "domain", "attributes"),
    [
        ("TfIdfVectorizer", "", {"pool_int64s": [NUMBER] * LENGTH, "weights": [float(NUMBER)] * LENGTH}),
        ("TfIdfVectorizer", "", {"pool_strings": [TEXT] * LENGTH}),
        ("StringNormalizer", "", {"stopwords": [TEXT]}),
        ("RegexFullMatch", "", {"pattern": TEXT}),
        ("Tokenizer", "com.microsoft", {"separators": [TEXT], "tokenexp": TEXT}),
    ],
)
def test_vocabularies_and_patterns_of_other_domains_go(op_type, domain, attributes):
    kept = {"ngram_counts": [0, 1], "ngram_indexes": [0, 1, 2]} if op_type == "TfIdfVectorizer" else {}
    proto = model(
        [helper.make_node(op_type, ["x"], ["y"], domain=domain, **attributes, **kept)], {"x": (3,)}, {"y": None}
    )
    strip_weights(proto)
    left = {attribute.name: helper.get_attribute_value(attribute) for attribute in proto.graph.node[0].attribute}
    assert {name: [*left[name]] for name in kept} == kept
    assert all(not any(left[name]) and len(left[name]) in (0, len(value)) for name, value in attributes.items())


def test_what_shapes_are_computed_from_stays():
    shape, floats = numpy_helper.from_array(np.array([7, -1]), "shape"), numpy_helper.from_array(SECRET, "w")
    nodes = [
        node("Reshape", "x,shape", "r", "reshape"),
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(13))),
        helper.make_node("Constant", [], ["d"], value_ints=[17, 19]),
        helper.make_node("LeakyRelu", ["r"], ["y"], alpha=0.25),
    ]
    proto = model(nodes, {"x": (7, 2)}, {"y": (7, 2)})
    proto.graph.initializer.extend([shape, floats])
    strip_weights(proto)
    kept, emptied = proto.graph.initializer
    assert numpy_helper.to_array(kept).tolist() == [7, -1]
    assert (emptied.name, emptied.data_type, [*emptied.dims]) == ("w", TensorProto.FLOAT, [2])
    assert numpy_helper.to_array(proto.graph.node[1].attribute[0].t) == 13
    assert [*proto.graph.node[2].attribute[0].ints] == [17, 19]
    assert proto.graph.node[3].attribute[0].f == 0.25
